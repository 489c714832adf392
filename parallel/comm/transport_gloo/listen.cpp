#include <tandem/parallel/comm/transport_gloo/setup.h>

#include <stdexcept>  // Gloo's headers use it without including it

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/comm/transport_gloo/signals.h>
#include <tandem/parallel/comm/waiting.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::string text_of(const sockaddr& address) {
  const socklen_t length = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(&address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  check<ConfigError>(failed == 0, "gloo_backend: an address of this machine cannot be read: {}",
                     ::gai_strerror(failed));
  return text.data();
}

// Prefers IPv4 to IPv6.
std::string address_of_interface(const std::string& wanted, const char* variable) {
  ifaddrs* all = nullptr;
  const bool listed = ::getifaddrs(&all) == 0;  // the check below reads errno
  check<ConfigError>(listed, "gloo_backend: the network interfaces cannot be listed: {}", core::system_message(errno));
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

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns null if `error` is set.
Addresses addresses_of(const std::string& host, const char* port, int type, int& error) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(host.c_str(), port, &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

// The system chooses the local address; no packet is sent.
std::string address_towards(const std::string& host) {
  int error = 0;
  const Addresses found = addresses_of(host, "9", SOCK_DGRAM, error);
  check<ConfigError>(error == 0, "gloo_backend: the store's host '{}' is not known: {}", host, ::gai_strerror(error));
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check<ConfigError>(fd >= 0 || (errno != EMFILE && errno != ENFILE),
                       "gloo_backend: no socket to find this machine's address: {}", core::system_message(errno));
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    const bool known =
        fd >= 0 && ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 && ::getsockname(fd, address, &length) == 0;
    ::close(fd);
    if (known) {
      const std::string text = text_of(*address);
      return text.starts_with("127.") || text == "::1" ? kLoopback : text;
    }
  }
  fail<ConfigError>(
      "gloo_backend: no network interface leads to the store's host '{}'; name the one that leads to the other ranks: "
      "export TANDEM_SOCKET_IFNAME=eth0",
      host);
}

// Gloo performs this check too, but leaks memory if it fails.
void check_is_here(const std::string& address) {
  int error = 0;
  const Addresses found = addresses_of(address, nullptr, SOCK_STREAM, error);
  std::string reason = error == 0 ? std::string() : ::gai_strerror(error);
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && ::bind(fd, entry->ai_addr, entry->ai_addrlen) == 0;
    reason = core::system_message(errno);
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

std::shared_ptr<gloo::transport::Device> listen_at(const std::string& address) {
  const SignalBlock for_its_thread;
  const ShortSlice also_for_it;
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    const int shortage = core::shortage_in(error);
    fail<ConfigError>("gloo_backend: cannot listen at '{}': {}", address,
                      shortage != 0 ? core::system_message(shortage) : error.what());
  }
}

}  // namespace tandem::inline v0::parallel
