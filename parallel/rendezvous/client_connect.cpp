#include <tandem/parallel/rendezvous/channel.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/error.hpp>
#include <asio/redirect_error.hpp>
#include <asio/ssl/error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/host_name.h>
#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = Channel::Clock;

constexpr auto kLost = StoreError::Kind::lost;
constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{500};
constexpr milliseconds kAttempt{10'000};    // per address
constexpr milliseconds kHandshake{15'000};  // after the server accepted the connection
// A server that ends closes waiting connections, as a server with another token does. But a server that ended no longer
// answers the next try.
constexpr int kGreetings = 3;

std::vector<tcp::endpoint> resolve(const TcpStoreOptions& options, asio::any_io_executor executor,
                                   asio::error_code& error) {
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (!error) {
    return {{address, options.port}};
  }
  // The resolver would say that there is no such host if it lacked descriptors.
  const core::Descriptor first(open_socket(tcp::v4()));
  core::Descriptor second(open_socket(tcp::v4()));
  second.close();
  std::vector<tcp::endpoint> endpoints;
  tcp::resolver resolver(executor);
  for (const auto& entry : resolver.resolve(options.host, std::to_string(options.port), error)) {
    endpoints.push_back(entry.endpoint());
  }
  return endpoints;
}

// One attempt at one address. Returns null and sets `error` on failure.
asio::awaitable<std::shared_ptr<Channel>> attempt(tcp::endpoint endpoint, Clock::time_point deadline,
                                                  asio::error_code& error) {
  auto executor = co_await asio::this_coro::executor;
  auto channel =
      std::make_shared<Channel>(tcp::socket(executor, endpoint.protocol(), open_socket(endpoint.protocol())));
  channel->arm(std::min(deadline, Clock::now() + kAttempt));
  error = co_await channel->connect(endpoint);
  if (channel->expired()) {
    error = asio::error::timed_out;
  }
  if (error) {
    channel->close();
    channel.reset();
  }
  co_return channel;
}

// While it exists, tells on_waiting once a second why this client is not connected: one attempt can take long.
class Reminder {
 public:
  Reminder(const asio::any_io_executor& executor, const TcpStoreOptions& options)
      : timer_(std::make_shared<Timer>(executor)) {
    if (options.on_waiting) {
      asio::co_spawn(executor, remind(timer_, options), asio::detached);
    }
  }
  ~Reminder() {
    timer_->over = true;
    timer_->clock.cancel();
  }
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

  void set_reason(std::string reason) { timer_->reason = std::move(reason); }

 private:
  struct Timer {
    explicit Timer(const asio::any_io_executor& executor) : clock(executor) {}
    asio::steady_timer clock;
    std::string reason = "no answer";
    bool over = false;
  };

  static asio::awaitable<void> remind(std::shared_ptr<Timer> timer, const TcpStoreOptions& options) {
    asio::error_code ignored;
    while (!timer->over) {
      timer->clock.expires_after(std::chrono::seconds(1));
      co_await timer->clock.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (!timer->over) {
        options.on_waiting(timer->reason);
      }
    }
  }

  std::shared_ptr<Timer> timer_;
};

asio::awaitable<std::shared_ptr<Channel>> reach(const TcpStoreOptions& options, Clock::time_point deadline,
                                                Reminder& reminder) {
  auto executor = co_await asio::this_coro::executor;
  std::minstd_rand random(static_cast<unsigned>(::getpid()) + 7919U * static_cast<unsigned>(options.rank + 1));
  for (milliseconds wait = kFirstPause;; wait = std::min(2 * wait, kLongestPause)) {
    asio::error_code error;
    const std::vector<tcp::endpoint> endpoints = resolve(options, executor, error);
    for (const tcp::endpoint& endpoint : endpoints) {
      check_exposure(to_text(endpoint), endpoint.address().is_loopback(), options.token.has_value());
      auto channel = co_await attempt(endpoint, deadline, error);
      if (channel) {
        co_return channel;
      }
    }
    // The ranks must not all retry at the same moment.
    const milliseconds next = wait / 2 + milliseconds(random() % static_cast<unsigned>(wait.count()));
    if (Clock::now() + next > deadline) {
      fail_store(kLost,
                 "no rendezvous server at {} within {} ms ({}). Is the launcher, or rank 0, running, and is this its "
                 "address and port?",
                 at_port(options.host, options.port), options.connect_timeout.count(), error.message());
    }
    reminder.set_reason(error.message());
    co_await pause_for(next);
  }
}

// Whether the other end gave up for a reason of its own.
bool is_internal_there(const asio::error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_TLSV1_ALERT_INTERNAL_ERROR;
}

// Shows the token, derives the key and introduces this client. Returns false if another try may succeed: the server
// accepted our token and closed the connection later, because this client was too slow on a busy machine or because the
// server ends.
asio::awaitable<bool> join(Channel& channel, const TcpStoreOptions& options, TlsContext& tls, int greetings) {
  const std::string server = at_port(options.host, options.port);
  enum { greeting, key, hello } step = greeting;
  try {
    std::string text = tls.greeting();
    co_await channel.write_clear(std::move(text));
    const std::string reply = co_await channel.read_clear(1);
    if (reply[0] != kGreetingAnswer) {
      fail_store(kLost, "what listens at {} is no rendezvous server of tandem: is the port right?", server);
    }
    step = key;
    co_await channel.start_tls(tls, TlsContext::Side::client);
    step = hello;
    const auto interval = static_cast<std::uint32_t>(options.heartbeat_interval.count());
    channel.send(
        encode(encode_hello({options.rank, static_cast<std::uint32_t>(::getpid()), interval, core::host_name()})));
    const Frame answer = co_await channel.read(kHandshake);
    if (answer.kind == FrameKind::refused) {
      fail_store(StoreError::Kind::refused, "the rendezvous server at {} did not let us in: {}", server, answer.value);
    }
    check<IoError>(answer.kind == FrameKind::done, "rendezvous: a hello is not answered with a frame of kind {}",
                   static_cast<int>(answer.kind));
    co_return true;
  } catch (const asio::system_error& error) {
    if ((step != greeting || greetings < kGreetings) && !channel.expired() && is_closed(error.code())) {
      co_return false;
    }
    if (channel.expired()) {
      fail_store(
          kLost,
          "what listens at {} took the connection and said nothing for {} ms: is it a rendezvous server of tandem, "
          "and not stopped?",
          server, kHandshake.count());
    }
    switch (step) {
      case greeting:
        fail_store(kLost,
                   "the rendezvous server at {} turned us away: it was started with {} TANDEM_JOB_TOKEN{}, or it is "
                   "another program",
                   server, options.token ? "another" : "a", options.token ? " than ours" : "");
      case key:
        if (is_internal_there(error.code())) {
          fail_store(kLost,
                     "what listens at {} failed before it proved that it has our TANDEM_JOB_TOKEN: nothing was sent to "
                     "it ({}). Has that process no memory left (ulimit -v)?",
                     server, error.code().message());
        }
        fail_store(kLost,
                   "what listens at {} did not prove that it has our TANDEM_JOB_TOKEN: nothing was sent to it ({})",
                   server, error.code().message());
      case hello:
        fail_store(kLost, "the connection to the rendezvous server at {} failed: {}", server, error.code().message());
    }
    throw;
  }
}

}  // namespace

asio::awaitable<std::shared_ptr<Channel>> connect_to_server(const TcpStoreOptions& options, TlsContext& tls) {
  const Clock::time_point deadline = Clock::now() + options.connect_timeout;
  Reminder reminder(co_await asio::this_coro::executor, options);
  for (int greetings = 1;; ++greetings) {
    std::shared_ptr<Channel> channel = co_await reach(options, deadline, reminder);
    channel->arm(Clock::now() + kHandshake);
    bool joined = false;
    try {
      joined = co_await join(*channel, options, tls, greetings);
    } catch (...) {
      channel->close();
      throw;
    }
    if (joined) {
      channel->disarm();
      co_return channel;
    }
    channel->close();
    if (Clock::now() >= deadline) {
      fail_store(kLost, "the rendezvous server at {} closed the connection while we joined, again and again for {} ms",
                 at_port(options.host, options.port), options.connect_timeout.count());
    }
    co_await pause_for(4 * kFirstPause);
  }
}

}  // namespace tandem::inline v0::parallel
