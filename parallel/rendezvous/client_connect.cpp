#include <tandem/parallel/rendezvous/channel.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <asio/error.hpp>
#include <asio/redirect_error.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using Clock = Channel::Clock;

constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{500};
constexpr milliseconds kAttempt{5'000};    // per address
constexpr milliseconds kHandshake{5'000};  // after the server accepted the connection
// A server that ends closes waiting connections, as a server with another token does. But a server that ended no longer
// answers the next try.
constexpr int kGreetings = 3;

std::string server_of(const TcpStoreOptions& options) {
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", options.host, options.port) : fmt::format("{}:{}", options.host, options.port);
}

template <class... Args>
[[noreturn]] void fail_lost(fmt::format_string<Args...> format, Args&&... args) {
  throw StoreError(StoreError::Kind::lost, fmt::format(format, std::forward<Args>(args)...));
}

std::vector<tcp::endpoint> resolve(const TcpStoreOptions& options, asio::any_io_executor executor,
                                   asio::error_code& error) {
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (!error) {
    return {{address, options.port}};
  }
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
  tcp::socket socket = open_socket(executor, endpoint.protocol());
  asio::steady_timer timer(executor, std::min(deadline, Clock::now() + kAttempt));
  auto expired = std::make_shared<bool>(false);
  timer.async_wait([&socket, expired](const asio::error_code& cancelled) {
    if (!cancelled && !*expired) {
      *expired = true;
      socket.close();
    }
  });
  co_await socket.async_connect(endpoint, asio::redirect_error(asio::use_awaitable, error));
  if (std::exchange(*expired, true)) {
    error = asio::error::timed_out;
  }
  tcp::endpoint here;
  tcp::endpoint there;
  if (!error) {
    here = socket.local_endpoint(error);
  }
  if (!error) {
    there = socket.remote_endpoint(error);  // fails if the server has gone since
  }
  if (!error && here == there) {
    error = asio::error::connection_refused;  // nobody listens: the system chose that very port for our own side
  }
  if (error) {
    co_return nullptr;
  }
  co_return std::make_shared<Channel>(std::move(socket));
}

asio::awaitable<std::shared_ptr<Channel>> reach(const TcpStoreOptions& options, Clock::time_point deadline) {
  auto executor = co_await asio::this_coro::executor;
  std::minstd_rand random(static_cast<unsigned>(::getpid()) + 7919U * static_cast<unsigned>(options.rank + 1));
  asio::steady_timer pause(executor);
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
      fail_lost(
          "no rendezvous server at {} within {} ms ({}). Is the launcher, or rank 0, running, and is this its "
          "address and port?",
          server_of(options), options.connect_timeout.count(), error.message());
    }
    pause.expires_after(next);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

// Shows the token, derives the key and introduces this client. Returns the server's answer, or nothing if another try
// may succeed: the server accepted our token and closed the connection later, because this client was too slow on a
// busy machine or because the server ends.
asio::awaitable<std::optional<Frame>> join(Channel& channel, const TcpStoreOptions& options, TlsContext& tls,
                                           int& greetings) {
  const std::string server = server_of(options);
  enum { greeting, key, hello } step = greeting;
  try {
    ++greetings;
    std::string text = tls.greeting();
    co_await channel.write_clear(std::move(text));
    const std::string reply = co_await channel.read_clear(1);
    if (reply[0] != kGreetingAnswer) {
      fail_lost("what listens at {} is no rendezvous server of tandem: is the port right?", server);
    }
    step = key;
    co_await channel.start_tls(tls, TlsContext::Side::client);
    step = hello;
    const auto interval = static_cast<std::uint32_t>(options.heartbeat_interval.count());
    channel.send(
        encode(encode_hello({options.rank, static_cast<std::uint32_t>(::getpid()), interval, own_host_name()})));
    Frame answer = co_await channel.read(kHandshake);
    co_return answer;
  } catch (const asio::system_error& error) {
    if ((step != greeting || greetings < kGreetings) && !channel.expired() && is_closed(error.code())) {
      co_return std::nullopt;
    }
    if (channel.expired()) {
      fail_lost(
          "what listens at {} took the connection and said nothing for {} ms: is it a rendezvous server of tandem, "
          "and not stopped?",
          server, kHandshake.count());
    }
    switch (step) {
      case greeting:
        fail_lost(
            "the rendezvous server at {} turned us away: it was started with {} TANDEM_JOB_TOKEN{}, or it is "
            "another program",
            server, options.token ? "another" : "a", options.token ? " than ours" : "");
      case key:
        fail_lost("what listens at {} did not prove that it has our TANDEM_JOB_TOKEN: nothing was sent to it ({})",
                  server, error.code().message());
      case hello: fail_lost("the connection to the rendezvous server at {} failed: {}", server, error.code().message());
    }
    throw;
  }
}

// Returns null if another try may succeed.
asio::awaitable<std::shared_ptr<Channel>> connect_once(const TcpStoreOptions& options, TlsContext& tls,
                                                       Clock::time_point deadline, int& greetings) {
  std::shared_ptr<Channel> channel = co_await reach(options, deadline);
  channel->arm(Clock::now() + kHandshake);
  std::optional<Frame> answer;
  try {
    answer = co_await join(*channel, options, tls, greetings);
    if (answer && answer->kind == FrameKind::refused) {
      throw StoreError(StoreError::Kind::refused, fmt::format("the rendezvous server at {} did not let us in: {}",
                                                              server_of(options), answer->value));
    }
    check<IoError>(!answer || answer->kind == FrameKind::done,
                   "rendezvous: a hello is not answered with a frame of kind {}",
                   answer ? static_cast<int>(answer->kind) : 0);
  } catch (...) {
    channel->close();
    throw;
  }
  channel->disarm();
  if (!answer) {
    channel->close();
    channel.reset();
  }
  co_return channel;
}

}  // namespace

asio::awaitable<std::shared_ptr<Channel>> connect_to_server(const TcpStoreOptions& options, TlsContext& tls) {
  const Clock::time_point deadline = Clock::now() + options.connect_timeout;
  for (int greetings = 0;;) {
    std::shared_ptr<Channel> channel = co_await connect_once(options, tls, deadline, greetings);
    if (channel != nullptr) {
      co_return channel;
    }
    if (Clock::now() >= deadline) {
      fail_lost("the rendezvous server at {} closed the connection while we joined, again and again for {} ms",
                server_of(options), options.connect_timeout.count());
    }
    asio::steady_timer pause(co_await asio::this_coro::executor, 4 * kFirstPause);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

}  // namespace tandem::inline v0::parallel
