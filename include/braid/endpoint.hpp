#pragma once

/// \file
/// Where a server is: an address or a host name with a port, or the path of a unix socket.

#include <braid/config.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

namespace braid {

/// A value that names one server, or the place where one listens.
///
/// It is one of three kinds: a literal address with a port ("10.0.0.1:80", "[::1]:80"), a host name with a
/// port, to be resolved ("example.org:80"), or a unix socket: the path of its file ("unix:/run/echo.sock") or
/// its abstract name, which has no file ("unix:@echo").
///
/// Thread safety: distinct objects are independent; const members may be called from several threads.
class endpoint {
 public:
  /// The kinds, in the order in which endpoints compare.
  enum class kind { literal, host_name, unix_path };

  /// The address 0.0.0.0 and port 0.
  endpoint() = default;

  /// A literal address; port 0 means "any" to a listener and cannot be connected to.
  endpoint(const boost::asio::ip::address& address, std::uint16_t port) : where_(address), port_(port) {}

  /// The address and port of a socket.
  explicit endpoint(const boost::asio::ip::tcp::endpoint& other) : endpoint(other.address(), other.port()) {}

  /// Reads `host:port`, `1.2.3.4:80`, `[::1]:80`, `unix:path` or `unix:@name`.
  ///
  /// A host name is made of labels of up to 63 letters, digits, '-' and '_' with dots between them, 253
  /// characters in all, and is lowered, since names of any case are the same name. A name that looks like an
  /// IPv4 address and is none ("1.2.3", "256.0.0.1") is refused rather than looked up. What follows `unix:`
  /// is a path of 1 to 107 bytes, even if it is all digits; one that starts with '@' is an abstract name of
  /// Linux (for a file of that name write "unix:./@name"). Nothing is looked up, except that the scope of a
  /// link-local address ("[fe80::1%eth0]:80") must be a known interface or a number.
  ///
  /// \returns the endpoint, or `boost::system::errc::invalid_argument`.
  static boost::system::result<endpoint> parse(std::string_view text);

  /// The same; on failure `why` is set to one line that says what is wrong, else it is left alone.
  static boost::system::result<endpoint> parse(std::string_view text, std::string& why);

  /// Which kind this is.
  kind type() const noexcept { return static_cast<kind>(where_.index()); }

  /// Whether this is an address, which needs no lookup.
  bool is_literal() const noexcept { return type() == kind::literal; }

  /// The address without brackets, the lowered host name, the path, or '@' and the abstract name.
  std::string host() const;

  /// The port in host byte order; 0 for a unix socket.
  std::uint16_t port() const noexcept { return port_; }

  /// The address, or 0.0.0.0 if this is not a literal.
  boost::asio::ip::address address() const noexcept;

  /// What to connect a socket to; that of `address()`, so only meaningful for a literal.
  boost::asio::ip::tcp::endpoint tcp() const noexcept { return {address(), port_}; }

  /// The text that `parse()` turns back into an equal endpoint.
  std::string to_string() const;

  /// Equal if kind, address (with scope), name or path, and port are.
  friend bool operator==(const endpoint& a, const endpoint& b) noexcept {
    return a.port_ == b.port_ && a.where_ == b.where_;
  }

  /// Orders by kind, then by address (IPv4 first), name or path, then by port.
  friend std::strong_ordering operator<=>(const endpoint& a, const endpoint& b) noexcept;

  /// A hash of the value, also for boost::hash.
  friend std::size_t hash_value(const endpoint& value) noexcept;

 private:
  struct host_name {
    std::string text;
    auto operator<=>(const host_name&) const = default;
  };
  struct unix_path {
    std::string text;
    auto operator<=>(const unix_path&) const = default;
  };
  using place = std::variant<boost::asio::ip::address, host_name, unix_path>;  // in the order of kind

  place where_;
  std::uint16_t port_ = 0;

  friend class endpoint_parser;
};

}  // namespace braid

/// For unordered containers of endpoints.
template <>
struct std::hash<braid::endpoint> {
  /// Equal endpoints have the same.
  std::size_t operator()(const braid::endpoint& value) const noexcept { return hash_value(value); }
};
