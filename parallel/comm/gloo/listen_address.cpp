#include <tandem/parallel/comm/gloo/listen_address.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kLoopback = "127.0.0.1";

socklen_t length_of(const sockaddr& address) {
  return address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string text_of(const sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(&address, length_of(address), text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  check<ConfigError>(failed == 0, "gloo_backend: an address of this machine cannot be read: {}",
                     ::gai_strerror(failed));
  return text.data();
}

// IPv4 before IPv6.
std::string address_of_interface(const std::string& wanted, const char* variable) {
  ifaddrs* all = nullptr;
  const bool listed = ::getifaddrs(&all) == 0;  // errno is read after it
  check<ConfigError>(listed, "gloo_backend: the network interfaces cannot be listed: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::vector<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) {
        continue;
      }
      if (entry->ifa_name == wanted) {
        return text_of(*entry->ifa_addr);
      }
      names.emplace_back(entry->ifa_name);
    }
  }
  fail<ConfigError>(
      "gloo_backend: {} is '{}', but this machine has no such network interface with an address; it has {}", variable,
      wanted, fmt::join(names, ", "));
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

// The system chooses the address; nothing is sent.
std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), "9", &hints, &found);
  check<ConfigError>(failed == 0, "gloo_backend: the store's host '{}' is not known: {}", host, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    const bool known =
        fd >= 0 && ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 && ::getsockname(fd, address, &length) == 0;
    ::close(fd);
    if (known) {
      return is_loopback(*address) ? kLoopback : text_of(*address);
    }
  }
  fail<ConfigError>(
      "gloo_backend: no network interface leads to the store's host '{}'; name the one that leads to the other ranks: "
      "export TANDEM_SOCKET_IFNAME=eth0",
      host);
}

// Gloo finds out, too, but where the answer is no it loses memory.
void check_is_here(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(address.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(failed == 0 ? found : nullptr, &::freeaddrinfo);
  std::string reason = failed == 0 ? std::string() : ::gai_strerror(failed);
  for (const addrinfo* entry = owner.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && ::bind(fd, entry->ai_addr, entry->ai_addrlen) == 0;
    reason = std::strerror(errno);
    ::close(fd);
    if (bound) {
      return;
    }
  }
  fail<ConfigError>("gloo_backend: cannot listen at '{}', which is no address of this machine: {}", address, reason);
}

}  // namespace

std::string listen_address(const GlooOptions& options) {
  if (!options.address.empty()) {
    check_is_here(options.address);
    return options.address;
  }
  for (const char* variable : {"TANDEM_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    if (const auto name = process_environment(variable); name && !name->empty()) {
      return address_of_interface(*name, variable);
    }
  }
  return options.store_host.empty() ? kLoopback : address_towards(options.store_host);
}

}  // namespace tandem::inline v0::parallel
