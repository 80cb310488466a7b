#include "wire/control_frame.hpp"

#include "client/kept_cancels.hpp"
#include "golden/oracle.hpp"
#include "wire/frame.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using braid::cancel_cause;
using braid::client::kept_cancels;
using namespace braid::wire;

constexpr std::pair<cancel_cause, std::uint32_t> causes[] = {
    {cancel_cause::deadline, 1},      {cancel_cause::user, 2},        {cancel_cause::fail_limit, 3},
    {cancel_cause::success_limit, 4}, {cancel_cause::sibling_won, 5}, {cancel_cause::peer_gone, 6},
    {cancel_cause::shutdown, 7},
};

// The meta of a frame that is nothing else, as protobuf reads it.
braid::wire::oracle::RpcMeta parsed(std::string_view frame) {
  REQUIRE(frame.size() > header_size);
  REQUIRE(frame.substr(0, 4) == "PRPC");
  const auto size = static_cast<unsigned char>(frame[7]);
  REQUIRE(size == frame.size() - header_size);
  REQUIRE(static_cast<unsigned char>(frame[11]) == size);
  braid::wire::oracle::RpcMeta meta;
  REQUIRE(meta.ParseFromString(std::string(frame.substr(header_size))));
  return meta;
}

rpc_meta cancel_meta() {
  rpc_meta meta;
  meta.correlation_id = 5;
  meta.cancel_cause = 2;
  return meta;
}

}  // namespace

TEST_CASE("cancel frame: every cause has its number, and comes back from it") {
  for (const auto& [cause, number] : causes) {
    CHECK(cause_to_wire(cause) == number);
    CHECK(cause_from_wire(number) == cause);
  }
}

TEST_CASE("cancel frame: a cause that is unknown is the user's") {
  for (const std::uint32_t number : {0U, 8U, 255U, 256U + 1U, std::numeric_limits<std::uint32_t>::max()})
    CHECK(cause_from_wire(number) == cancel_cause::user);
  CHECK(cause_to_wire(cancel_cause::none) == 2);
}

TEST_CASE("cancel frame: protobuf reads what is written, at every width of an id") {
  for (const std::int64_t id : {std::int64_t{0}, std::int64_t{1}, std::int64_t{127}, std::int64_t{128},
                                std::int64_t{0x100000002}, std::numeric_limits<std::int64_t>::max(),
                                std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    for (const auto& [cause, number] : causes) {
      const auto frame = control_frame::cancel(id, cause);
      const auto meta = parsed(frame.bytes());
      CHECK_FALSE(meta.has_request());
      CHECK_FALSE(meta.has_response());
      CHECK(meta.correlation_id() == id);
      CHECK(meta.cancel_cause() == number);
      CHECK_FALSE(meta.has_features());
    }
  }
}

TEST_CASE("cancel frame: an announcement has the correlation id 0, the features and nothing else") {
  const auto meta = parsed(control_frame::announcement().bytes());
  CHECK(meta.has_correlation_id());
  CHECK(meta.correlation_id() == 0);
  CHECK(meta.features() == 1);
  CHECK(meta.ByteSizeLong() == 2 + 4);
}

TEST_CASE("cancel frame: only a meta with neither request nor response is one") {
  CHECK(is_cancel(cancel_meta()));
  CHECK(is_control(cancel_meta()));
  auto meta = cancel_meta();
  meta.has_request = true;
  CHECK_FALSE(is_cancel(meta));
  CHECK_FALSE(is_control(meta));
  meta = cancel_meta();
  meta.has_response = true;
  CHECK_FALSE(is_cancel(meta));
  CHECK_FALSE(is_control(meta));
  meta = cancel_meta();
  meta.correlation_id.reset();
  CHECK_FALSE(is_cancel(meta));
  CHECK(is_control(meta));
  meta = cancel_meta();
  meta.cancel_cause.reset();
  CHECK_FALSE(is_cancel(meta));
  CHECK_FALSE(is_control(meta));
  meta.features = 0;
  CHECK(is_control(meta));
}

TEST_CASE("peer features: those of the first meta, whatever bits are unknown") {
  const auto after = [](std::optional<std::uint64_t> features) {
    peer_features peer;
    CHECK_FALSE(peer.heard());
    rpc_meta meta;
    meta.features = features;
    peer.hear(meta);
    CHECK(peer.heard());
    return peer;
  };
  CHECK_FALSE(after(std::nullopt).announced());
  CHECK_FALSE(after(std::nullopt).takes_cancels());
  CHECK(after(0).announced());
  CHECK_FALSE(after(0).takes_cancels());
  CHECK(after(1).takes_cancels());
  CHECK(after(~std::uint64_t{0}).takes_cancels());
  CHECK_FALSE(after(~std::uint64_t{1}).takes_cancels());
  CHECK(after(~std::uint64_t{1}).announced());
}

TEST_CASE("kept cancels: bounded, in order, without those of answered calls") {
  kept_cancels kept;
  for (std::size_t i = 0; i < kept_cancels::most + 100; ++i)
    kept.add(static_cast<std::int64_t>(i), cancel_cause::deadline);
  CHECK(kept.size() == kept_cancels::most);
  kept.drop(1);
  kept.drop(999'999);
  CHECK(kept.size() == kept_cancels::most - 1);
  const auto all = kept.take();
  REQUIRE(all.size() == kept_cancels::most - 1);
  CHECK(all[0].id == 0);
  CHECK(all[1].id == 2);
  CHECK(all[1].cause == cancel_cause::deadline);
  CHECK(kept.size() == 0);
  CHECK(kept.take().empty());
}
