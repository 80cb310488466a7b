#include <braid/endpoint.hpp>

#include <boost/container_hash/hash.hpp>
#include <boost/system/errc.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

namespace braid {
namespace {

constexpr std::string_view unix_prefix = "unix:";
constexpr std::size_t longest_path = 107;  // sockaddr_un holds 108 bytes, the last of which is 0
constexpr std::size_t longest_name = 253;  // RFC 1035, section 2.3.4
constexpr std::size_t longest_label = 63;

// Not those of <cctype>, which depend on the locale.
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_upper(char c) noexcept { return c >= 'A' && c <= 'Z'; }
constexpr char lower(char c) noexcept { return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr bool is_hex(char c) noexcept { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); }
constexpr bool is_name_char(char c) noexcept {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' || c == '_' || c == '.';
}
constexpr bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Whether a lookup would take the last label of a name for a number, and so the name for an IPv4 address.
bool is_number(std::string_view label) noexcept {
  if (label.size() >= 2 && label[0] == '0' && lower(label[1]) == 'x') {
    return std::all_of(label.begin() + 2, label.end(), is_hex);
  }
  return !label.empty() && std::all_of(label.begin(), label.end(), is_digit);
}

// Whether Asio, which reads "1x" as 1 and what it does not know as 0, understood the scope of an address.
bool is_scope(std::string_view text, unsigned long scope_id) noexcept {
  const bool starts_as_number = !text.empty() && is_digit(text.front());
  const bool is_sane_number = text.size() <= 9 && std::all_of(text.begin(), text.end(), is_digit);
  return scope_id != 0 && (is_sane_number || !starts_as_number);
}

// What is wrong with a host name, or null.
const char* fault_of_name(std::string_view name) noexcept {
  if (name.empty()) return "the host is empty";
  if (!std::all_of(name.begin(), name.end(), is_name_char))
    return "the host name has a character it may not have";
  if (name.back() == '.') name.remove_suffix(1);  // an absolute name
  if (name.size() > longest_name) return "the host name is longer than 253 characters";
  std::string_view label;
  for (std::size_t begin = 0; begin <= name.size(); begin += label.size() + 1) {
    label = name.substr(begin, std::min(name.find('.', begin), name.size()) - begin);
    if (label.empty()) return "the host name has an empty label";
    if (label.size() > longest_label) return "the host name has a label longer than 63 characters";
  }
  if (is_number(label)) return "the host is not a valid IPv4 address";
  return nullptr;
}

}  // namespace

// Reads one text; the first fault found stays in fault_.
class endpoint_parser {
 public:
  explicit endpoint_parser(std::string_view text) noexcept : text_(text) {}

  const char* fault() const noexcept { return fault_; }

  std::optional<endpoint> parse() {
    if (text_.empty()) return fail("the endpoint is empty");
    if (text_.find('\0') != std::string_view::npos) return fail("there is a zero byte in it");
    if (std::any_of(text_.begin(), text_.end(), is_control))
      return fail("there is a control character in it");
    if (text_.substr(0, unix_prefix.size()) == unix_prefix)
      return parse_path(text_.substr(unix_prefix.size()));
    if (text_.find(' ') != std::string_view::npos) return fail("there is a space in it");
    return text_.front() == '[' ? parse_bracketed() : parse_plain();
  }

 private:
  std::nullopt_t fail(const char* fault) noexcept {
    fault_ = fault;
    return std::nullopt;
  }

  static endpoint make(endpoint::place where, std::uint16_t port) {
    endpoint made;
    made.where_ = std::move(where);
    made.port_ = port;
    return made;
  }

  std::optional<endpoint> parse_path(std::string_view path) {
    if (path.empty()) return fail("the path of the unix socket is empty");
    if (path == "@") return fail("the abstract name of the unix socket is empty");
    if (path.size() > longest_path) return fail("the path of the unix socket is longer than 107 bytes");
    return make(endpoint::unix_path{std::string{path}}, 0);
  }

  std::optional<endpoint> parse_bracketed() {
    const auto close = text_.find(']');
    if (close == std::string_view::npos) return fail("the bracket '[' is not closed");
    const auto inside = text_.substr(1, close - 1);
    const auto rest = text_.substr(close + 1);
    if (inside.empty()) return fail("the host is empty");

    boost::system::error_code ec;
    const auto address = boost::asio::ip::make_address_v6(inside, ec);
    if (ec) return fail("what is in brackets is not a valid IPv6 address");
    const auto percent = inside.find('%');
    if (percent != std::string_view::npos && !is_scope(inside.substr(percent + 1), address.scope_id())) {
      return fail("the scope of the IPv6 address is not a known interface");
    }

    if (rest.empty()) return fail("the port is missing");
    if (rest.front() != ':') return fail("']' must be followed by ':' and the port");
    const auto port = parse_port(rest.substr(1));
    if (!port) return std::nullopt;
    return endpoint{address, *port};
  }

  std::optional<endpoint> parse_plain() {
    const auto colon = text_.find(':');
    const auto host = text_.substr(0, colon);
    if (text_.find_first_of("[]") != std::string_view::npos)
      return fail("there is a bracket where none may be");
    if (text_.find("://") != std::string_view::npos) return fail("there is a scheme before the host");
    if (colon == std::string_view::npos) return fail("the port is missing");
    if (looks_like_ipv6()) return fail("an IPv6 address must stand in brackets, as in [::1]:80");
    if (host.empty()) return fail("the host is empty");

    boost::system::error_code ec;
    const auto address = boost::asio::ip::make_address_v4(host, ec);
    if (ec) {
      if (const char* fault = fault_of_name(host)) return fail(fault);
    }
    const auto port = parse_port(text_.substr(colon + 1));
    if (!port) return std::nullopt;
    if (!ec) return endpoint{address, *port};

    std::string name{host};
    std::transform(name.begin(), name.end(), name.begin(), lower);
    return make(endpoint::host_name{std::move(name)}, *port);
  }

  bool looks_like_ipv6() const noexcept {
    const auto is_ipv6_char = [](char c) { return is_hex(c) || c == ':' || c == '.'; };
    return std::count(text_.begin(), text_.end(), ':') > 1 &&
           std::all_of(text_.begin(), text_.end(), is_ipv6_char);
  }

  std::optional<std::uint16_t> parse_port(std::string_view digits) noexcept {
    if (digits.empty()) return fail("the port is missing");
    const auto end = std::find_if_not(digits.begin(), digits.end(), is_digit);
    if (end == digits.begin()) return fail("the port is not a number");
    if (end != digits.end()) return fail("there is something behind the port");
    std::uint16_t port = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (result.ec != std::errc{}) return fail("the port is larger than 65535");
    return port;
  }

  std::string_view text_;
  const char* fault_ = nullptr;
};

boost::system::result<endpoint> endpoint::parse(std::string_view text) {
  if (auto parsed = endpoint_parser{text}.parse()) return std::move(*parsed);
  return make_error_code(boost::system::errc::invalid_argument);
}

boost::system::result<endpoint> endpoint::parse(std::string_view text, std::string& why) {
  endpoint_parser parser{text};
  if (auto parsed = parser.parse()) return std::move(*parsed);
  why = parser.fault();
  return make_error_code(boost::system::errc::invalid_argument);
}

std::string endpoint::host() const {
  switch (type()) {
    case kind::host_name:
      return std::get<host_name>(where_).text;
    case kind::unix_path:
      return std::get<unix_path>(where_).text;
    case kind::literal:
      break;
  }
  return address().to_string();
}

boost::asio::ip::address endpoint::address() const noexcept {
  const auto* address = std::get_if<boost::asio::ip::address>(&where_);
  return address ? *address : boost::asio::ip::address{};
}

std::string endpoint::to_string() const {
  if (type() == kind::unix_path) return std::string{unix_prefix} + host();
  const bool brackets = is_literal() && address().is_v6();
  return (brackets ? '[' + host() + ']' : host()) + ':' + std::to_string(port_);
}

std::strong_ordering operator<=>(const endpoint& a, const endpoint& b) noexcept {
  if (a.where_ < b.where_) return std::strong_ordering::less;
  if (b.where_ < a.where_) return std::strong_ordering::greater;
  return a.port_ <=> b.port_;
}

std::size_t hash_value(const endpoint& value) noexcept {
  std::size_t seed = value.where_.index();
  boost::hash_combine(seed, value.port_);
  if (const auto* name = std::get_if<endpoint::host_name>(&value.where_)) {
    boost::hash_combine(seed, name->text);
  } else if (const auto* path = std::get_if<endpoint::unix_path>(&value.where_)) {
    boost::hash_combine(seed, path->text);
  } else {
    boost::hash_combine(seed, std::hash<boost::asio::ip::address>{}(value.address()));
  }
  return seed;
}

}  // namespace braid
