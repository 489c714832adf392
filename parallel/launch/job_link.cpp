#include <tandem/parallel/launch/job_link.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/environment.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Launchers are watched over like ranks, with numbers that no rank has.
constexpr int kFirstLauncher = kMaxWorldSize;
constexpr milliseconds kOneTry{1'000};
constexpr milliseconds kLook{50};
constexpr milliseconds kBeforeSaying{3'000};  // that others are waited for

constexpr const char* kId = "tandem/run/id";        // "<name of the job>/<attempt>"
constexpr const char* kRanks = "tandem/run/ranks";  // how many node 0 expects
constexpr const char* kReady = "tandem/run/ready";  // how many launchers are there
constexpr const char* kDone = "tandem/run/done";    // how many have done

std::string ranks_text(const LaunchOptions& options) {
  return fmt::format("--nnodes {} --nproc-per-node {}", options.nodes, options.ranks);
}

// Each attempt has its own, so that a rank that outlives one is a stranger to the next: its store is at the same place.
JobToken token_of(const JobToken& job, int attempt) {
  if (attempt == 0) {
    return job;
  }
  const std::string text = fmt::format("tandem run: attempt {}", attempt);
  std::array<unsigned char, JobToken::kBytes> bytes{};
  const bool done = HMAC(EVP_sha256(), job.bytes().data(), static_cast<int>(job.bytes().size()),
                         reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data(), nullptr);
  check<IoError>(done, "OpenSSL has no HMAC-SHA256: its installation is broken");
  std::string digits = fmt::format("{:02x}", fmt::join(bytes, ""));
  const JobToken token = JobToken::from_hex(digits);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  OPENSSL_cleanse(digits.data(), digits.size());
  return token;
}

std::string new_run_id() { return JobToken::generate().hex().substr(0, 16); }

}  // namespace

JobLink::JobLink(const LaunchOptions& options, const JobToken& token, int attempt)
    : options_(options), token_(token_of(token, attempt)), attempt_(attempt), port_(options.port) {
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  check<IoError>(event_ >= 0, "launch: no event descriptor: {}", std::strerror(errno));
  if (options.node != 0) {
    return;
  }
  run_id_ = new_run_id();
  server_ = std::make_unique<StoreServer>(StoreServerOptions{
      .host = options.host,
      .port = options.port,
      .token = token_,
      .heartbeat_limit = options.heartbeat_limit,
      .on_lost =
          [this](const LostRank& lost) {
            if (lost.process.rank < kFirstLauncher) {
              LinkMessage message;
              message.kind = LinkMessage::Kind::lost_rank;
              message.lost = lost;
              hear(message);
            } else {
              hear(LinkMessage::Kind::lost_launcher,
                   fmt::format("{}{} (pid {} on {}) is gone: {}", kLauncherOfNode, lost.process.rank - kFirstLauncher,
                               lost.process.pid, lost.process.host,
                               lost.sign == LostRank::Sign::closed ? "its connection closed without a goodbye"
                                                                   : "it is stopped, or its machine is cut off"));
            }
          },
      .on_verdict = [this](const std::string& text) { hear(LinkMessage::Kind::verdict, text); }});
  port_ = server_->port();
}

JobLink::~JobLink() {
  store_.reset();
  if (server_ != nullptr) {
    // The other launchers would take the end of the server for the end of this one; after a verdict they have a moment
    // to hear it.
    server_->wait_until_left(milliseconds(5'000));
    const Clock::time_point end = Clock::now() + milliseconds(2'000);
    while (options_.nodes > 1 && !server_->ranks().empty() && Clock::now() < end) {
      std::this_thread::sleep_for(kLook);
    }
    server_.reset();
  }
  ::close(event_);
}

void JobLink::hear(LinkMessage::Kind kind, const std::string& text) {
  LinkMessage message;
  message.kind = kind;
  message.text = text;
  hear(message);
}

void JobLink::hear(const LinkMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof one);
}

std::vector<LinkMessage> JobLink::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

// Whether node 0's server for this attempt is there. The one of the attempt before may still be.
bool JobLink::connect(std::string& why) {
  try {
    store_ = std::make_unique<TcpStore>(TcpStoreOptions{
        .host = server_ != nullptr ? server_->host() : options_.host,
        .port = port_,
        .token = token_,
        .rank = options_.node == 0 ? -1 : kFirstLauncher + options_.node,
        .connect_timeout = kOneTry,
        .heartbeat_interval = std::min(milliseconds(1'000), options_.heartbeat_limit / 2),
        .heartbeat_limit = options_.heartbeat_limit,
        .on_verdict =
            [this](const std::string& text) {
              if (server_ == nullptr) {
                hear(LinkMessage::Kind::verdict, text);
              }
            },
        .on_lost = [this](const std::string& reason) { hear(LinkMessage::Kind::lost_server, reason); }});
    const std::string suffix = fmt::format("/{}", attempt_);
    if (server_ != nullptr) {
      store_->set(kRanks, ranks_text(options_));
      store_->set(kId, run_id_ + suffix);
    }
    const std::string id = store_->get(kId, kOneTry);
    if (id.ends_with(suffix)) {
      run_id_ = id.substr(0, id.size() - suffix.size());
      return true;
    }
    why = fmt::format("node 0 is at another attempt ({})", id);
  } catch (const StoreError& error) {
    if (server_ != nullptr && error.kind() == StoreError::Kind::verdict) {
      throw;  // on this attempt: the server is new
    }
    why = error.what();
    why += attempt_ > 0 && error.kind() == StoreError::Kind::lost ? "; or node 0 is at another attempt" : "";
  }
  store_.reset();
  take();  // what the old one said
  return false;
}

void JobLink::join_others() {
  const std::string theirs = store_->get(kRanks);
  if (theirs != ranks_text(options_)) {
    const std::string text =
        fmt::format("node {} was started with {}, and node 0 with {}: the launchers of a job need the same numbers",
                    options_.node, ranks_text(options_), theirs);
    store_->announce_verdict(text);
    fail<ConfigError>("{}", text);
  }
  store_->add(kReady, 1);
}

int JobLink::wait_for_nodes(const SignalCatcher& signals, const std::function<void(const std::string&)>& note) {
  if (options_.nodes == 1) {
    return 0;
  }
  const Clock::time_point start = Clock::now();
  bool said = false;
  std::string why;
  std::string here;
  while (here != std::to_string(options_.nodes)) {
    const bool was_there = store_ != nullptr;
    if (was_there || connect(why)) {
      if (!was_there) {
        join_others();
      }
      here = store_->try_get(kReady).value_or("0");
      why = fmt::format("{} of {} launchers are there", here, options_.nodes);
    }
    if (here == std::to_string(options_.nodes)) {
      break;
    }
    if (const int signal = signals.take_end()) {
      say_stopped(signal);
      return signal;
    }
    const auto waited = Clock::now() - start;
    if (!std::exchange(said, said || waited > kBeforeSaying) && waited > kBeforeSaying) {
      note(fmt::format("node {} waits for the others at {}:{}: {}", options_.node, options_.host, port_, why));
    }
    if (waited > options_.node_timeout) {
      throw StoreError(
          StoreError::Kind::timeout,
          fmt::format("the launchers of {} nodes did not meet at {}:{} within {:.0f} s: {}", options_.nodes,
                      options_.host, port_, std::chrono::duration<double>(waited).count(), why));
    }
    std::this_thread::sleep_for(kLook);
  }
  return 0;
}

void JobLink::publish(const std::string& verdict) {
  if (server_ != nullptr) {
    server_->publish_verdict(verdict);
  } else if (store_ != nullptr) {
    store_->announce_verdict(verdict.substr(0, 4096));
  }
}

void JobLink::say_stopped(int signal) {
  if (options_.nodes > 1) {
    publish(fmt::format("{}{} was stopped by {}", kLauncherOfNode, options_.node, signal_text(signal)));
  }
}

void JobLink::report_done() {
  if (store_ != nullptr) {
    store_->add(kDone, 1);
  }
}

bool JobLink::all_done() { return store_ == nullptr || store_->try_get(kDone) == std::to_string(options_.nodes); }

}  // namespace tandem::inline v0::parallel
