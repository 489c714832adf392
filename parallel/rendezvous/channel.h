#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <asio/awaitable.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/steady_timer.hpp>

#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/store_table.h>
#include <tandem/parallel/rendezvous/tls.h>

// Internal: one connection between a TcpStore and a StoreServer. All functions are called on the thread that runs its
// io_context. They throw asio::system_error when the connection fails, and IoError for what is no frame.

namespace tandem::inline v0::parallel {

/// A socket of this family that no child inherits.
asio::ip::tcp::socket open_socket(asio::any_io_executor executor, const asio::ip::tcp& protocol);

/// "127.0.0.1:29500", "[::1]:29500".
std::string to_text(const asio::ip::tcp::endpoint& endpoint);

/// Whether it is the other side that has closed the connection. What was to be sent may fail before what is read does:
/// then we close our side, which cancels reading.
bool is_closed(const asio::error_code& error);

/// Held by shared pointers: what it has under way keeps it.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Channel(asio::ip::tcp::socket socket);

  /// Closes the connection at `when`, unless it is disarmed. What waits for it then fails, and expired() is true.
  void arm(Clock::time_point when);
  void disarm();
  bool expired() const noexcept { return expired_; }

  /// Before TLS.
  asio::awaitable<std::string> read_clear(std::size_t bytes);
  asio::awaitable<void> write_clear(std::string bytes);

  /// Makes the TLS state and shakes hands; fails unless both sides used the key.
  asio::awaitable<void> start_tls(TlsContext& tls, TlsContext::Side side);

  /// The next frame. Once its header is there, the rest must come within `limit`.
  asio::awaitable<Frame> read(std::chrono::milliseconds limit);

  /// Sends these bytes, and `tail` behind them, after all that was handed over before. Returns at once.
  void send(std::string bytes, StoreTable::Value tail = nullptr);
  /// What waits to be sent.
  std::size_t unsent() const noexcept { return unsent_; }
  /// Returns when all was sent, or the connection failed.
  asio::awaitable<void> flush();

  void close();
  bool is_open() const { return socket_.is_open(); }

 private:
  struct Message {
    std::string bytes;
    StoreTable::Value tail;
  };

  asio::awaitable<void> write_messages();

  asio::ip::tcp::socket socket_;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
  asio::steady_timer deadline_;
  std::size_t armed_ = 0;  // counts; an alarm that comes too late has another number
  bool expired_ = false;
  bool writing_ = false;
  std::size_t unsent_ = 0;
  std::deque<Message> messages_;
};

}  // namespace tandem::inline v0::parallel
