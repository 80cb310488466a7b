#pragma once

#include <braid/authenticator.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace auth_fixture {

/// An authenticator of two functions of the test's, that keeps what it was asked.
class scripted_authenticator final : public braid::authenticator {
 public:
  using credential = boost::system::result<std::string>;
  using finding = boost::system::result<braid::auth_context>;

  std::function<credential(const braid::endpoint&, braid::yield_context)> generate =
      [](const braid::endpoint&, braid::yield_context) { return credential("token-123"); };
  std::function<finding(std::string_view, const braid::endpoint&, braid::yield_context)> verify =
      [](std::string_view shown, const braid::endpoint&, braid::yield_context) -> finding {
    if (!shown.starts_with("token-")) return braid::error_code(braid::errc::auth_failed);
    braid::auth_context who;
    who.user = shown.substr(6);
    return who;
  };
  int generated = 0;
  std::vector<std::string> shown;

  credential generate_credential(const braid::endpoint& server, braid::yield_context yield) override {
    ++generated;
    return generate(server, yield);
  }
  finding verify_credential(std::string_view given, const braid::endpoint& client,
                            braid::yield_context yield) override {
    shown.emplace_back(given);
    return verify(given, client, yield);
  }
};

}  // namespace auth_fixture
