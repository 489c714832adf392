#include <tandem/parallel/rendezvous/init_method.h>

#include <algorithm>
#include <array>

#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

// Also allows the name of a network interface, such as fe80::1%eth0.
bool is_ipv6_character(char c) { return is_host_character(c) || c == ':' || c == '%'; }

InitMethod parse_tcp(std::string_view text, std::string_view address) {
  const std::string shown = shown_key(text);
  const std::size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon == std::string_view::npos ? address.size() : colon);
  const std::string_view port = colon == std::string_view::npos ? std::string_view() : address.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  check<ConfigError>(bracketed || host.find(':') == std::string_view::npos,
                     "init method '{}': an IPv6 address needs brackets, as in tcp://[::1]:29500", shown);
  check<ConfigError>(!host.empty() && host.size() <= 253 &&
                         std::all_of(host.begin(), host.end(), bracketed ? is_ipv6_character : is_host_character),
                     "init method '{}': expected a host as in tcp://node7:29500, got '{}'", shown, shown_key(host));
  const std::optional<std::int64_t> number = parse_number(port, 1, 65535);
  check<ConfigError>(number.has_value(),
                     "init method '{}': expected a port of 1 to 65535 as in tcp://node7:29500, got '{}'", shown,
                     shown_key(port));
  return {InitMethod::Kind::tcp, std::string(host), static_cast<std::uint16_t>(*number), {}};
}

}  // namespace

InitMethod parse_init_method(std::string_view text) {
  const std::size_t end = text.find("://");
  const std::string_view scheme = end == std::string_view::npos ? text : text.substr(0, end);
  const std::string_view rest = end == std::string_view::npos ? std::string_view() : text.substr(end + 3);
  if (end != std::string_view::npos && scheme == "env") {
    check<ConfigError>(rest.empty(), "init method '{}': nothing comes after env://; the variables say the rest",
                       shown_key(text));
    return {};
  }
  if (end != std::string_view::npos && scheme == "tcp") {
    return parse_tcp(text, rest);
  }
  if (end != std::string_view::npos && scheme == "file") {
    check<ConfigError>(!rest.empty() && rest.find('\0') == std::string_view::npos,
                       "init method '{}': expected a folder, as in file:///shared/folder", shown_key(text));
    return {InitMethod::Kind::file, {}, 0, std::string(rest)};
  }
  static const std::array<std::string, 3> kSchemes{"env", "tcp", "file"};
  const std::string close = scheme.size() <= 16 ? core::nearest(scheme, kSchemes) : "";
  fail<ConfigError>("init method '{}': expected env://, tcp://host:port or file://folder{}", shown_key(text),
                    close.empty() ? "" : "; did you mean " + close + "://?");
}

}  // namespace tandem::inline v0::parallel
