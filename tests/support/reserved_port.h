#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::test {

/// A port of 127.0.0.1 that no other program on this machine gets while this object lives, although no server listens
/// on it. A server that sets SO_REUSEADDR, as tandem's do, can still bind it. (A port that was merely free a moment ago
/// may meanwhile be taken by any program that makes a connection.)
class ReservedPort {
 public:
  ReservedPort() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      number_ = ntohs(address.sin_port);
    }
  }
  ~ReservedPort() { ::close(descriptor_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  /// The port, or 0 if the system provided none.
  std::uint16_t number() const noexcept { return number_; }

 private:
  int descriptor_;
  std::uint16_t number_ = 0;
};

}  // namespace tandem::test
