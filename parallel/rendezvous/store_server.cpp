#include <tandem/parallel/rendezvous/store_server.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/host_name.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/rendezvous/server_state.h>
#include <tandem/parallel/rendezvous/text.h>

// The way of a connection from stranger to client:
//
// 1. accept() takes the connection. A stranger is a connection that has not shown the token yet; if there are too many
//    strangers, the oldest one is closed.
// 2. shake_hands() reads a greeting in the clear, which proves that the client has the job's token. A stranger
//    therefore costs a socket and no TLS. Then TLS begins, with a key made from the token.
// 3. admit() reads the hello: the client's rank, process, host and heartbeat interval. A client that may not join
//    learns the reason.
// 4. talk() passes one frame after another to ServerState, which holds the keys, the waits and the verdict.
// 5. A connection that closes without a goodbye is a lost rank at once. watch() finds ranks that are connected but
//    silent.
//
// Everything runs as coroutines on one thread, so no locks are needed. Other threads post to it (IoThread::call).

namespace tandem::inline v0::parallel {

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = Connection::Clock;

constexpr std::size_t kMaxConnections = 4096;
constexpr std::size_t kMaxStrangers = 1024;  // connections that have not shown the token yet
constexpr std::size_t kMaxHandshakes = 64;
constexpr milliseconds kStrangersTime{100};  // a stranger keeps at least this time when others arrive
constexpr milliseconds kParentsTime{200};    // to notice the death of a child
constexpr milliseconds kShortageTime{500};   // without a descriptor for a connection
constexpr std::size_t kMaxUnsent =
    4U << 20U;  // bytes of answers to one client; the server stops reading from it until some are sent
constexpr std::size_t kMaxGreetings = 1U << 16U;
constexpr std::uint64_t kLeastAddresses = 16U << 20U;  // bytes, half of them for the thread's stack

}  // namespace

struct StoreServer::Impl {
  StoreServerOptions options;
  asio::io_context io;
  TlsContext tls;
  tcp::acceptor acceptor;
  tcp::endpoint endpoint;  // the server's address
  std::string host;
  asio::steady_timer sweep;
  std::atomic<std::size_t> refused = 0;

  // Used only on the server's thread.
  ServerState state;
  std::list<ConnectionPtr> strangers;  // the oldest first
  std::unordered_set<std::string> greetings;
  std::size_t connections = 0;
  std::size_t handshakes = 0;
  bool stopping = false;
  bool readmits = true;

  IoThread thread{io};  // last member: the thread uses all members above

  explicit Impl(StoreServerOptions given)
      : options(std::move(given)),
        tls(TlsContext::Side::server, options.token),
        acceptor(listen_at(io, options)),
        endpoint(acceptor.local_endpoint()),
        host(endpoint.address().to_string()),
        sweep(io),
        state(options) {}

  void start() {
    // Without memory in the middle of a handshake no side could say why it failed.
    const std::uint64_t left = core::free_addresses().value_or(kLeastAddresses);
    check<IoError>(left >= kLeastAddresses, "rendezvous server: no memory for connections: {}",
                   core::system_message(ENOMEM));
    asio::co_spawn(io, accept(), asio::detached);
    asio::co_spawn(io, watch(), asio::detached);
    thread.start();
  }

  // Every coroutine ends when its connection or timer is closed, and run() ends with the last coroutine.
  void stop() {
    asio::post(io, [this] {
      stopping = true;
      asio::error_code ignored;
      acceptor.close(ignored);
      sweep.cancel();
      for (const ConnectionPtr& stranger : strangers) {
        stranger->channel->close();
      }
      state.close_all();
    });
    thread.join();
  }

  asio::awaitable<void> accept() {
    asio::error_code error;
    std::optional<Clock::time_point> shortage_since;
    while (!stopping) {
      co_await acceptor.async_wait(tcp::acceptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
      if (stopping) {
        break;
      }
      const bool room = co_await have_room();
      if (!room) {
        continue;
      }
      const int descriptor = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          co_await bear_shortage(errno, shortage_since);
        }
        continue;  // the client is gone again
      }
      shortage_since.reset();
      auto connection = std::make_shared<Connection>();
      connection->channel = std::make_shared<Channel>(tcp::socket(io, endpoint.protocol(), descriptor));
      connection->since = connection->heard = Clock::now();
      asio::co_spawn(io, serve(std::move(connection)), asio::detached);
    }
  }

  // Strangers must not be able to end the job, so a shortage is a verdict only if there are none to close.
  asio::awaitable<void> bear_shortage(int number, std::optional<Clock::time_point>& since) {
    const Clock::time_point now = Clock::now();
    if (!strangers.empty()) {
      since.reset();
      if (now - strangers.front()->since > kStrangersTime) {
        strangers.front()->channel->close();  // its coroutine removes it from the list
      }
    } else if (now - since.emplace(since.value_or(now)) > kShortageTime) {
      state.publish(fmt::format("the server of the job's store (pid {} on {}) cannot take one more connection: {}",
                                ::getpid(), core::host_name(), core::system_message(number)));
    }
    co_await pause_for(milliseconds(10));
  }

  // Makes room for one more connection by closing the oldest stranger. Returns false if there is no room yet.
  asio::awaitable<bool> have_room() {
    if (connections < kMaxConnections && strangers.size() < kMaxStrangers) {
      co_return true;
    }
    if (!strangers.empty() && Clock::now() - strangers.front()->since > kStrangersTime) {
      strangers.front()->channel->close();  // its coroutine removes it from the list
    }
    co_await pause_for(milliseconds(1));
    co_return !stopping && connections < kMaxConnections && strangers.size() < kMaxStrangers;
  }

  asio::awaitable<void> serve(ConnectionPtr connection) {
    ++connections;
    const auto place = strangers.insert(strangers.end(), connection);
    bool is_client = false;
    try {
      connection->channel->arm(connection->since + options.handshake_limit);
      co_await shake_hands(connection);
      is_client = co_await admit(connection);
      connection->channel->disarm();
    } catch (const std::exception&) {
      // A stranger gets no answer.
    }
    strangers.erase(place);
    if (is_client) {
      try {
        co_await talk(connection);
      } catch (const std::exception&) {
        // The connection failed or sent an invalid frame: leave() decides what this means.
      }
      connection->channel->close();
      co_await learn_end(connection);
      state.leave(connection);
    } else {
      connection->channel->close();
      refused.fetch_add(stopping ? 0 : 1, std::memory_order_relaxed);
    }
    --connections;
  }

  asio::awaitable<void> shake_hands(ConnectionPtr connection) {
    Channel& channel = *connection->channel;
    std::string greeting = co_await channel.read_clear(kGreetingBytes);
    check<IoError>(tls.is_ours(greeting), "another token");
    if (greetings.size() >= kMaxGreetings) {
      greetings.clear();  // a reused greeting would not get past TLS anyway
    }
    check<IoError>(greetings.insert(std::move(greeting)).second, "a greeting is used once");
    while (handshakes >= kMaxHandshakes && channel.is_open()) {
      co_await pause_for(milliseconds(1));
    }
    ++handshakes;
    const std::shared_ptr<void> counted(nullptr, [this](void*) { --handshakes; });
    std::string answer(1, kGreetingAnswer);
    co_await channel.write_clear(std::move(answer));
    co_await channel.start_tls(tls, TlsContext::Side::server);
  }

  // Admits a client that has the token. Returns false if it may not join, after telling it the reason.
  asio::awaitable<bool> admit(ConnectionPtr connection) {
    Channel& channel = *connection->channel;
    const Frame frame = co_await channel.read(options.handshake_limit);
    std::string refusal;
    try {
      const Hello hello = decode_hello(frame);
      if (!readmits && state.has_left(hello.rank)) {
        co_return false;  // no answer: the client will try again
      }
      state.join(connection, hello);
    } catch (const Error& error) {
      refusal = error.what();
    }
    if (!refusal.empty()) {
      channel.arm(Clock::now() + options.handshake_limit);
      channel.send(encode({FrameKind::refused, 0, {}, refusal}));
      co_await channel.flush();
    }
    co_return refusal.empty();
  }

  asio::awaitable<void> talk(ConnectionPtr connection) {
    Channel& channel = *connection->channel;
    for (;;) {
      const Frame frame = co_await channel.read(options.heartbeat_limit);
      connection->heard = Clock::now();
      state.handle(connection, frame);
      if (connection->said_goodbye) {
        co_return;
      }
      while (channel.unsent() > kMaxUnsent && channel.is_open()) {
        co_await pause_for(milliseconds(1));
      }
    }
  }

  // The connection of a process that dies closes before its parent has noticed the death.
  asio::awaitable<void> learn_end(ConnectionPtr connection) {
    const Clock::time_point deadline = Clock::now() + kParentsTime;
    while (connection->end && connection->end->can_tell() && !connection->end->status() && !connection->said_goodbye &&
           !connection->lost && !stopping && Clock::now() < deadline) {
      co_await pause_for(milliseconds(2));
    }
  }

  asio::awaitable<void> watch() {
    const milliseconds period = std::clamp(options.heartbeat_limit / 8, milliseconds(10), milliseconds(500));
    asio::error_code ignored;
    while (!stopping) {
      const Clock::time_point due = Clock::now() + period;
      sweep.expires_at(due);
      co_await sweep.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const Clock::time_point now = Clock::now();
      if (now - due > options.heartbeat_limit / 4) {
        state.forgive(now);  // this process was suspended
      } else if (!stopping) {
        state.look_for_silent(now);
      }
    }
  }
};

StoreServer::StoreServer(StoreServerOptions options) {
  check<ConfigError>(options.heartbeat_limit >= milliseconds(20) && options.handshake_limit >= milliseconds(1),
                     "rendezvous server: expected a heartbeat limit of 20 ms or more and a handshake limit of 1 ms or "
                     "more, got {} ms and {} ms",
                     options.heartbeat_limit.count(), options.handshake_limit.count());
  impl_ = std::make_unique<Impl>(std::move(options));
  impl_->start();
}

StoreServer::~StoreServer() {
  if (impl_->thread.is_of_this_process()) {
    impl_->stop();
  } else {
    static_cast<void>(impl_.release());  // a child of fork() has no thread to join
  }
}

const std::string& StoreServer::host() const noexcept { return impl_->host; }
std::uint16_t StoreServer::port() const noexcept { return impl_->endpoint.port(); }

void StoreServer::publish_verdict(const std::string& text) {
  impl_->thread.call([&] { impl_->state.publish(text); });
}

std::string StoreServer::verdict() const {
  return impl_->thread.call([&] { return impl_->state.verdict(); });
}

std::vector<RankProcess> StoreServer::ranks() const {
  return impl_->thread.call([&] { return impl_->state.ranks(); });
}

void StoreServer::stop_readmitting() {
  impl_->thread.call([&] { impl_->readmits = false; });
}

bool StoreServer::wait_until_left(milliseconds timeout) const {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (;;) {
    const bool left = ranks().empty();
    const bool over = !verdict().empty();
    if (left || over || Clock::now() >= deadline) {
      return left;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
}

std::size_t StoreServer::refused() const noexcept { return impl_->refused.load(std::memory_order_relaxed); }

}  // namespace tandem::inline v0::parallel
