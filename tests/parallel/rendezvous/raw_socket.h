#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::test {

/// A connection to 127.0.0.1 from a program that is not a client.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    connected_ = ::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawSocket() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  RawSocket(RawSocket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), connected_(other.connected_) {}

  bool connected() const { return connected_; }

  void send(std::string_view bytes) const { ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  /// Reads until the other side closes the connection or sends nothing for `patience`.
  std::string read_all(std::chrono::milliseconds patience = std::chrono::seconds(5)) {
    std::string text;
    for (;;) {
      pollfd poll{descriptor_, POLLIN, 0};
      if (::poll(&poll, 1, static_cast<int>(patience.count())) <= 0) {
        return text;
      }
      char buffer[4096];
      const ssize_t got = ::recv(descriptor_, buffer, sizeof buffer, 0);
      if (got <= 0) {
        closed_ = true;
        return text;
      }
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }
  /// Whether read_all() reached the end of the stream.
  bool closed() const { return closed_; }

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

 private:
  int descriptor_;
  bool connected_ = false;
  bool closed_ = false;
};

/// Listens on 127.0.0.1 and answers one connection with `text`.
class Impostor {
 public:
  Impostor() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = RawSocket::loopback(0);
    socklen_t length = sizeof address;
    ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), length);
    ::listen(descriptor_, 4);
    ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~Impostor() { ::close(descriptor_); }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  std::uint16_t port() const { return port_; }

  /// Returns the first bytes received. Reads until the other side has closed.
  std::string answer(std::string_view text) const {
    const int connection = ::accept(descriptor_, nullptr, nullptr);
    char buffer[4096];
    const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
    ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    char rest[4096];
    while (::recv(connection, rest, sizeof rest, 0) > 0) {
    }
    ::close(connection);
    return {buffer, got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  int descriptor_;
  std::uint16_t port_ = 0;
};

}  // namespace tandem::test
