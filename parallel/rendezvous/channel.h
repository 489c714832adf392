#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/steady_timer.hpp>

#include <signal.h>
#include <unistd.h>

#include <tandem/core/system_limits.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/tls.h>

// Internal: one connection between a TcpStore and a StoreServer, how each side opens it, and the thread on which each
// side does all of its work. All functions of a Channel must be called on the thread that runs its io_context. They
// throw asio::system_error when the connection fails, and IoError for bytes that are not a valid frame.

namespace tandem::inline v0::parallel {

struct TcpStoreOptions;
struct StoreServerOptions;
class Channel;

/// A descriptor for a socket that child processes do not inherit. Throws asio::system_error.
int open_socket(const asio::ip::tcp& protocol);

/// The address and port as text: "127.0.0.1:29500", "[::1]:29500".
std::string to_text(const asio::ip::tcp::endpoint& endpoint);

/// Suspends the calling coroutine for this time.
asio::awaitable<void> pause_for(std::chrono::milliseconds time);

/// Whether the error means that the other side closed the connection. A write can fail before the last data is read;
/// our side then closes the socket, which cancels the read.
bool is_closed(const asio::error_code& error);

/// Allows a connection without a token on this machine only. Throws ConfigError for any other address and shows the
/// command that makes a token; with TANDEM_INSECURE_RENDEZVOUS=1 the error becomes a warning.
void check_exposure(const std::string& address, bool is_loopback, bool has_token);

/// The server's side: listens at exactly the address and port of the options. Throws ConfigError for an address that is
/// not allowed, and IoError if the address cannot be used.
asio::ip::tcp::acceptor listen_at(asio::io_context& io, const StoreServerOptions& options);

/// The client's side: tries until a server answers, performs the handshake and joins. Throws ConfigError or StoreError.
asio::awaitable<std::shared_ptr<Channel>> connect_to_server(const TcpStoreOptions& options, TlsContext& tls);

/// Runs an io_context. The thread blocks all signals, so other threads handle them.
class IoThread {
 public:
  explicit IoThread(asio::io_context& io) : io_(io) {}

  void start() {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = core::start_thread("the rendezvous", [this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void join() { thread_.join(); }

  /// Runs `action` on the thread and returns its result.
  template <class Action>
  auto call(const Action& action) const {
    if (std::this_thread::get_id() == thread_.get_id()) {
      return action();  // from a callback
    }
    // Shared: the task may still be in use when its result is there.
    const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Action>()>>(action);
    auto result = task->get_future();
    asio::post(io_, [task] { (*task)(); });
    return result.get();
  }

  /// False in a child of fork(), which has the object but not the thread.
  bool is_of_this_process() const noexcept { return owner_ == ::getpid(); }

 private:
  // Without memory not even an error can be passed on, and the exception ends the process.
  void run() {
    try {
      io_.run();
    } catch (const std::bad_alloc&) {
      constexpr std::string_view kText = "tandem: the rendezvous is out of host memory (ulimit -v)\n";
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
      throw;
    }
  }

  asio::io_context& io_;
  std::thread thread_;
  pid_t owner_ = ::getpid();
};

/// Held by shared pointers: pending operations keep the channel alive.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Channel(asio::ip::tcp::socket socket);

  /// Closes the connection at `when` unless disarmed. Operations that wait then fail, and expired() is true.
  void arm(Clock::time_point when);
  void disarm();
  bool expired() const noexcept { return expired_; }

  /// Connects the client's socket. Returns the error; a socket that the system connected to itself counts as refused.
  asio::awaitable<asio::error_code> connect(asio::ip::tcp::endpoint server);

  /// Reads before TLS begins.
  asio::awaitable<std::string> read_clear(std::size_t bytes);
  asio::awaitable<void> write_clear(std::string bytes);

  /// Creates the TLS state and performs the handshake, which fails unless both sides used the key.
  asio::awaitable<void> start_tls(TlsContext& tls, TlsContext::Side side);

  /// Reads the next frame. After its header the rest must arrive within `limit`.
  asio::awaitable<Frame> read(std::chrono::milliseconds limit);

  /// Sends `bytes` and then `tail`, after everything sent before. Returns at once.
  void send(std::string bytes, std::shared_ptr<const std::string> tail = nullptr);
  /// The number of bytes that wait to be sent.
  std::size_t unsent() const noexcept { return unsent_; }
  /// Returns when everything has been sent or the connection has failed.
  asio::awaitable<void> flush();

  void close();
  bool is_open() const { return socket_.is_open(); }

 private:
  struct Message {
    std::string bytes;
    std::shared_ptr<const std::string> tail;

    std::size_t size() const { return bytes.size() + (tail ? tail->size() : 0); }
  };

  asio::awaitable<void> write_messages();

  asio::ip::tcp::socket socket_;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
  asio::steady_timer deadline_;
  std::size_t armed_ = 0;  // a count: an expired timer with an older number is ignored
  bool expired_ = false;
  bool writing_ = false;
  std::size_t unsent_ = 0;
  std::deque<Message> messages_;
};

}  // namespace tandem::inline v0::parallel
