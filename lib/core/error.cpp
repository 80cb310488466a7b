#include <braid/error.hpp>

#include <boost/asio/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace braid {
namespace {

const char* text_of(int value) noexcept {
  switch (static_cast<errc>(value)) {
    case errc::no_service:
      return "The server has no such service";
    case errc::no_method:
      return "The service has no such method";
    case errc::bad_request:
      return "The request could not be read";
    case errc::auth_failed:
      return "The credentials were not accepted";
    case errc::too_many_fails:
      return "Too many sub calls failed";
    case errc::parallel_finished:
      return "The combo call finished without this sub call";
    case errc::backup_request:
      return "A backup request is due";
    case errc::timed_out:
      return "The deadline passed";
    case errc::socket_failed:
      return "The connection failed";
    case errc::http:
      return "The HTTP exchange failed";
    case errc::overcrowded:
      return "Too much is waiting to be written to the peer";
    case errc::eof:
      return "The peer closed the connection";
    case errc::ssl:
      return "The TLS layer failed";
    case errc::rejected:
      return "The server refused the call";
    case errc::internal:
      return "The server failed inside";
    case errc::bad_response:
      return "The response could not be read or is too large";
    case errc::logoff:
      return "The server is shutting down";
    case errc::limit:
      return "The server is at its limit of concurrent calls";
    case errc::closed:
      return "The connection or the channel was closed";
  }
  return value == 0 ? "Success" : nullptr;
}

class rpc_category_impl final : public boost::system::error_category {
 public:
  // With an id, the copies of a static library in two shared objects still compare equal.
  constexpr rpc_category_impl() noexcept : error_category(0x5d1c'47b9'e02a'86f3) {}

  const char* name() const noexcept override { return "braid"; }

  std::string message(int value) const override {
    char buffer[64];
    return message(value, buffer, sizeof(buffer));
  }

  const char* message(int value, char* buffer, std::size_t size) const noexcept override {
    if (const char* text = text_of(value)) return text;
    if (size == 0) return buffer;
    std::snprintf(buffer, size, "The service failed with its own error %d", value);
    return buffer;
  }

  boost::system::error_condition default_error_condition(int value) const noexcept override {
    if (value == static_cast<int>(errc::timed_out)) {
      return {boost::system::errc::timed_out, boost::system::generic_category()};
    }
    return {value, *this};
  }
};

constinit const rpc_category_impl category;

// The errno values that mean the same on both ends. Linux numbers, because they are the wire's.
constexpr bool is_wire_errno(std::int32_t number) noexcept {
  switch (number) {
    case 1:    // EPERM: a synchronous call where none may be made
    case 11:   // EAGAIN
    case 12:   // ENOMEM
    case 22:   // EINVAL
    case 32:   // EPIPE
    case 61:   // ENODATA: no usable server in the list
    case 104:  // ECONNRESET
    case 110:  // ETIMEDOUT: connecting took too long
    case 111:  // ECONNREFUSED
    case 112:  // EHOSTDOWN
    case 125:  // ECANCELED
      return true;
    default:
      return false;
  }
}

std::int32_t errno_to_wire(int value) noexcept {
  return is_wire_errno(value) ? value : static_cast<std::int32_t>(errc::socket_failed);
}

bool named(const boost::system::error_category& category, const char* name) noexcept {
  return std::strcmp(category.name(), name) == 0;
}

boost::system::system_error base_of(const error_code& ec, std::string_view text, std::string_view peer,
                                    int attempts) {
  std::string what{text};
  if (!peer.empty()) {
    if (!what.empty()) what += ' ';
    what.append("[").append(peer).append("]");
  }
  if (attempts > 1) {
    if (!what.empty()) what += ' ';
    what.append("after ").append(std::to_string(attempts)).append(" attempts");
  }
  // With an empty prefix the message would begin with a colon.
  if (what.empty()) return boost::system::system_error{ec};
  return {ec, what};
}

}  // namespace

const boost::system::error_category& rpc_category() noexcept { return category; }

error_code from_wire(std::int32_t number) noexcept {
  if (number == 0) return {};
  if (is_wire_errno(number)) return {number, boost::system::system_category()};
  return {number, category};
}

std::int32_t to_wire(const error_code& ec) noexcept {
  namespace error = boost::asio::error;
  if (!ec.failed()) return 0;
  const auto& kind = ec.category();
  if (kind == category) return ec.value();
  if (kind == error::get_misc_category()) {
    return static_cast<std::int32_t>(ec == error::eof ? errc::eof : errc::socket_failed);
  }
  if (kind == error::get_netdb_category() || kind == error::get_addrinfo_category()) return EHOSTDOWN;
  // By name, since comparing the categories themselves would need OpenSSL's headers.
  if (named(kind, "asio.ssl") || named(kind, "asio.ssl.stream")) return static_cast<std::int32_t>(errc::ssl);

  // Through std, since an error_code may have come from there and then hides its category.
  const std::error_code same = ec;
  if (same.category() == std::system_category() || same.category() == std::generic_category()) {
    return errno_to_wire(same.value());
  }
  return static_cast<std::int32_t>(errc::socket_failed);
}

call_error::call_error(const error_code& ec, std::string_view text, std::string_view peer, int attempts)
    : system_error(base_of(ec, text, peer, attempts)),
      details_(std::make_shared<const details>(details{std::string{text}, std::string{peer}, attempts})) {}

}  // namespace braid
