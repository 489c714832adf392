#include <tandem/parallel/rendezvous/tcp_store.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/channel.h>
#include <tandem/parallel/rendezvous/text.h>

// A call on any thread becomes a numbered frame, which the store's thread sends. The caller sleeps until one of three
// events: the answer with that number arrives, the deadline passes, after which the caller cancels the request, or the
// job is over.
//
// The store's thread does three things. listen() reads answers and the verdict. send_heartbeats() shows the server that
// this process is alive and checks that the server is. disconnect() says goodbye, so that the server does not take a
// leaving rank for a dead one. Only refuse_calls() closes the store, with the server's verdict, because the server is
// lost, or because this rank leaves. It wakes all callers, and every later call throws the same error.

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = Channel::Clock;

constexpr milliseconds kGoodbyeTime{500};
constexpr milliseconds kGoodbyePause{5};

// A call that waits for its answer.
struct Call {
  std::condition_variable changed;
  std::optional<Frame> answer;
};

void check_options(const TcpStoreOptions& options) {
  check<ConfigError>(options.port != 0, "TcpStore: expected a port of 1 to 65535, got 0: the server says which it is");
  check<ConfigError>(options.rank >= -1, "TcpStore: expected a rank, or -1 for none, got {}", options.rank);
  const auto within = [](milliseconds time) { return time.count() >= 1 && time <= kMaxStoreTimeout; };
  check<ConfigError>(
      within(options.connect_timeout) && within(options.heartbeat_interval) && within(options.heartbeat_limit) &&
          2 * options.heartbeat_interval <= options.heartbeat_limit,
      "TcpStore: expected times of 1 ms to a day and a heartbeat limit of two intervals at least, got connect_timeout "
      "{} ms, heartbeat_interval {} ms, heartbeat_limit {} ms",
      options.connect_timeout.count(), options.heartbeat_interval.count(), options.heartbeat_limit.count());
}

}  // namespace

struct TcpStore::Impl {
  explicit Impl(TcpStoreOptions given)
      : options(std::move(given)), tls(TlsContext::Side::client, options.token), beat(io) {}

  void connect() {
    std::exception_ptr failure;
    asio::co_spawn(
        io, [this] { return connect_to_server(options, tls); },
        [&](std::exception_ptr error, std::shared_ptr<Channel> connected) {
          failure = std::move(error);
          channel = std::move(connected);
        });
    while (!failure && !channel) {
      io.run_for(kLook);
      if (!failure && !channel && options.goes_on && !options.goes_on()) {
        fail_store(StoreError::Kind::lost, "stopped connecting to {}, as goes_on asked", server());
      }
    }
    io.run();  // what else began meanwhile
    if (failure) {
      std::rethrow_exception(failure);
    }
    io.restart();
    heard = Clock::now();
    asio::co_spawn(io, listen(), asio::detached);
    asio::co_spawn(io, send_heartbeats(), asio::detached);
    thread.start();
  }

  void disconnect() {
    refuse_calls(StoreError::Kind::lost, "this rank has left its job");
    asio::post(io, [this] {
      leaving = true;
      beat.cancel();
      if (channel->is_open()) {
        asio::co_spawn(io, say_goodbye(), asio::detached);
      }
    });
    thread.join();
  }

  void post(const Frame& frame) {
    asio::post(io, [this, bytes = encode(frame)]() mutable { channel->send(std::move(bytes)); });
  }

  /// Sends a request and returns the answer, or nothing if the deadline passed or `goes_on` returned false.
  std::optional<Frame> call(Frame request, Deadline deadline, const std::function<bool()>& goes_on = {}) {
    Call call;
    std::unique_lock lock(mutex);
    if (over) {
      throw StoreError(*over);
    }
    if (refusal) {
      throw StoreError(*std::exchange(refusal, std::nullopt));
    }
    const std::uint32_t id = request.id = new_id();
    calls.emplace(id, &call);
    post(request);
    const auto ended = [&] { return call.answer || over; };
    while (!call.changed.wait_until(lock, goes_on ? std::min(deadline, Clock::now() + kLook) : deadline, ended) &&
           Clock::now() < deadline) {
      lock.unlock();
      std::exception_ptr failure;
      bool stays = false;
      try {
        stays = !goes_on || goes_on();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (!stays && calls.erase(id) > 0) {
        post({FrameKind::cancel, id, {}, {}});
      }
      if (failure) {
        std::rethrow_exception(failure);
      }
      if (!stays) {
        return std::move(call.answer);
      }
    }
    if (!call.answer && over) {
      throw StoreError(*over);
    }
    if (!call.answer) {
      calls.erase(id);
      post({FrameKind::cancel, id, {}, {}});
    } else if (call.answer->kind == FrameKind::refused) {
      throw StoreError(StoreError::Kind::refused, call.answer->value);
    }
    return std::move(call.answer);
  }

  /// Sends a request whose answer nobody awaits. If the answer is the number `count`, erases `keys`.
  void send(Frame request, std::int64_t count = 0, std::vector<std::string> keys = {}) {
    const std::lock_guard lock(mutex);
    if (over) {
      throw StoreError(*over);
    }
    request.id = new_id();
    sent.emplace(request.id, Sent{count, std::move(keys)});
    post(request);
  }

  // The caller holds the mutex.
  std::uint32_t new_id() {
    do {
      ++last_id;
    } while (last_id == 0 || calls.contains(last_id) || sent.contains(last_id));
    return last_id;
  }

  /// Like call(), but throws if the deadline passed.
  Frame ask(Frame request, Deadline deadline) {
    std::optional<Frame> answer = call(std::move(request), deadline);
    if (!answer) {
      fail_store(StoreError::Kind::timeout, "store: {} did not answer in time; it may still do what it was asked for",
                 server());
    }
    return std::move(*answer);
  }

  asio::awaitable<void> listen() {
    std::string reason;
    try {
      for (;;) {
        Frame frame = co_await channel->read(options.heartbeat_limit);
        heard = Clock::now();
        receive(std::move(frame));
      }
    } catch (const asio::system_error& error) {
      reason = is_closed(error.code()) && !channel->expired() ? "it closed the connection" : error.code().message();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    channel->close();
    beat.cancel();
    end(StoreError::Kind::lost, fmt::format("{} is gone ({}): the launcher, or rank 0, ended", server(), reason));
  }

  asio::awaitable<void> send_heartbeats() {
    asio::error_code ignored;
    while (channel->is_open() && !leaving) {
      const Clock::time_point due = Clock::now() + options.heartbeat_interval;
      beat.expires_at(due);
      co_await beat.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const Clock::time_point now = Clock::now();
      if (now - due > options.heartbeat_limit / 4) {
        heard = now;  // this process was suspended
      }
      if (channel->is_open() && !leaving) {
        if (now - heard > options.heartbeat_limit) {
          end(StoreError::Kind::lost, fmt::format("{} has not answered for {} ms: it is stopped, or the network is cut",
                                                  server(), options.heartbeat_limit.count()));
          channel->close();
        } else {
          channel->send(encode({FrameKind::beat, 0, {}, {}}));
        }
      }
    }
  }

  // The server closes the connection as its answer, which proves that the goodbye arrived. The pauses are short: one
  // long pause could be over at once on a busy machine before the goodbye was sent.
  asio::awaitable<void> say_goodbye() {
    channel->send(encode({FrameKind::goodbye, 0, {}, {}}));
    for (milliseconds waited{0}; waited < kGoodbyeTime && channel->is_open(); waited += kGoodbyePause) {
      co_await pause_for(kGoodbyePause);
    }
    channel->close();
  }

  void receive(Frame frame) {
    if (frame.kind == FrameKind::verdict) {
      end(StoreError::Kind::verdict, frame.value);
    }
    const std::lock_guard lock(mutex);
    if (const auto posted = sent.find(frame.id); posted != sent.end()) {
      if (frame.kind == FrameKind::refused) {
        tell_refusal(frame);
      } else if (posted->second.count != 0 && frame.value == encode_number(posted->second.count)) {
        for (const std::string& key : posted->second.keys) {
          post({FrameKind::erase, new_id(), key, {}});
        }
      }
      sent.erase(posted);
    } else if (const auto entry = calls.find(frame.id); entry != calls.end()) {
      entry->second->answer = std::move(frame);
      entry->second->changed.notify_one();
      calls.erase(entry);
    }
  }

  // The calls that wait may need what was refused. The caller holds the mutex.
  void tell_refusal(const Frame& refused) {
    if (calls.empty()) {
      refusal.emplace(StoreError::Kind::refused, refused.value);
    }
    for (const auto& [id, call] : calls) {
      post({FrameKind::cancel, id, {}, {}});
      call->answer = refused;
      call->changed.notify_one();
    }
    calls.clear();
  }

  void end(StoreError::Kind kind, const std::string& text) {
    const auto& told = kind == StoreError::Kind::verdict ? options.on_verdict : options.on_lost;
    if (refuse_calls(kind, text) && told) {
      told(text);
    }
  }

  // Ends all pending and later calls with this reason. Returns false if there is a reason already, which then stays.
  bool refuse_calls(StoreError::Kind kind, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (over) {
      return false;
    }
    over.emplace(kind, text);
    for (const auto& [id, call] : calls) {
      call->changed.notify_one();
    }
    calls.clear();
    return true;
  }

  std::string server() const { return "the rendezvous server at " + at_port(options.host, options.port); }

  TcpStoreOptions options;
  asio::io_context io;
  TlsContext tls;
  std::shared_ptr<Channel> channel;
  bool has_left = false;

  // Used only on the store's thread.
  asio::steady_timer beat;
  Clock::time_point heard;
  bool leaving = false;

  std::mutex mutex;
  std::map<std::uint32_t, Call*> calls;
  struct Sent {
    std::int64_t count;
    std::vector<std::string> keys;
  };
  std::map<std::uint32_t, Sent> sent;   // requests without a caller
  std::optional<StoreError> refusal{};  // of such a request, for the next caller
  std::uint32_t last_id = 0;
  std::optional<StoreError> over;  // the reason why the store accepts no more calls

  IoThread thread{io};  // last member: the thread uses all members above
};

TcpStore::TcpStore(TcpStoreOptions options) {
  check_options(options);
  impl_ = std::make_unique<Impl>(std::move(options));
  impl_->connect();
}

TcpStore::~TcpStore() {
  if (impl_->thread.is_of_this_process()) {
    leave();
  } else {
    static_cast<void>(impl_.release());  // a child of fork() has no thread to join
  }
}

void TcpStore::leave() {
  if (!std::exchange(impl_->has_left, true)) {
    impl_->disconnect();
  }
}

void TcpStore::announce_verdict(const std::string& text) {
  check<ConfigError>(!text.empty() && text.size() <= kMaxFrameText,
                     "TcpStore: expected a verdict of 1 to {} bytes, got {}", kMaxFrameText, text.size());
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->over) {
    impl_->post({FrameKind::verdict, 0, {}, text});
  }
}

void TcpStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  impl_->ask({FrameKind::set, 0, std::string(key), std::string(value)}, deadline);
}

bool TcpStore::do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) {
  if (!wait) {
    Frame answer = impl_->ask({FrameKind::try_get, 0, std::string(key), {}}, deadline);
    *value = std::move(answer.value);
    return answer.kind == FrameKind::value;
  }
  return do_get_while(key, value, deadline, {});
}

bool TcpStore::do_get_while(std::string_view key, std::string* value, Deadline deadline,
                            const std::function<bool()>& goes_on) {
  std::optional<Frame> answer = impl_->call({FrameKind::get, 0, std::string(key), {}}, deadline, goes_on);
  if (answer && value != nullptr) {
    *value = std::move(answer->value);
  }
  return answer.has_value();
}

std::int64_t TcpStore::do_add(std::string_view key, std::int64_t amount, Deadline deadline) {
  const Frame answer = impl_->ask({FrameKind::add, 0, std::string(key), encode_number(amount)}, deadline);
  check<IoError>(answer.value.size() == 8, "rendezvous: expected a number of 8 bytes, got {}", answer.value.size());
  return decode_number(answer.value);
}

bool TcpStore::do_erase(std::string_view key, Deadline deadline) {
  return impl_->ask({FrameKind::erase, 0, std::string(key), {}}, deadline).kind == FrameKind::done;
}

void TcpStore::do_post_set(std::string_view key, std::string_view value) {
  impl_->send({FrameKind::set, 0, std::string(key), std::string(value)});
}

void TcpStore::do_post_erase(std::string_view key) { impl_->send({FrameKind::erase, 0, std::string(key), {}}); }

void TcpStore::do_post_count(std::string_view counter, std::int64_t count, std::string_view key) {
  impl_->send({FrameKind::add, 0, std::string(counter), encode_number(1)}, count,
              {std::string(key), std::string(counter)});
}

}  // namespace tandem::inline v0::parallel
