#include <tandem/parallel/job/job_link.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/meet.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The server watches launchers like ranks, under numbers that no rank has.
constexpr int kFirstLauncher = kMaxWorldSize;
constexpr milliseconds kOneTry{1'000};
constexpr milliseconds kLinkLook{50};
constexpr milliseconds kBeforeSaying{3'000};  // before announcing the wait for other nodes

constexpr const char* kDone = "tandem/run/done";  // counts the nodes that are done

std::string ranks_text(const LaunchOptions& options) {
  return fmt::format("--nnodes {} --nproc-per-node {}", options.nodes, options.ranks);
}

// Each attempt has its own token. A rank that outlives its attempt is then a stranger to the next one, whose store has
// the same address.
JobToken token_of(const JobToken& job, int attempt) {
  return attempt == 0 ? job : job.derived(fmt::format("tandem run: attempt {}", attempt));
}

}  // namespace

JobLink::JobLink(const LaunchOptions& options, const JobToken& token, int attempt, const std::string& run_id)
    : options_(options), token_(token_of(token, attempt)), attempt_(attempt), port_(options.port) {
  event_ = core::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  check<IoError>(event_.get() >= 0, "launch: no event descriptor: {}", core::system_message(errno));
  if (options.node != 0) {
    return;
  }
  run_id_ = run_id.empty() ? random_name() : run_id;
  server_ = std::make_unique<StoreServer>(StoreServerOptions{
      .host = options.host,
      .port = options.port,
      .token = token_,
      .heartbeat_limit = options.heartbeat_limit,
      .on_lost =
          [this](const LostRank& lost) {
            if (lost.process.rank < kFirstLauncher) {
              hear({.kind = LinkMessage::Kind::lost_rank, .lost = lost});
            } else {
              hear({.kind = LinkMessage::Kind::lost_launcher,
                    .text =
                        fmt::format("{}{} (pid {} on {}) is gone: {}", kLauncherOfNode,
                                    lost.process.rank - kFirstLauncher, lost.process.pid, lost.process.host,
                                    lost.sign == LostRank::Sign::closed ? "its connection closed without a goodbye"
                                                                        : "it is stopped, or its machine is cut off")});
            }
          },
      .on_verdict = [this](const std::string& text) { hear({.kind = LinkMessage::Kind::verdict, .text = text}); }});
  port_ = server_->port();
}

JobLink::~JobLink() {
  store_.reset();
  if (server_ != nullptr) {
    // The other launchers would mistake the end of the server for the end of this launcher. After a verdict they get a
    // moment to hear it.
    server_->wait_until_left(milliseconds(5'000));
    const Clock::time_point end = Clock::now() + milliseconds(2'000);
    while (options_.nodes > 1 && !server_->ranks().empty() && Clock::now() < end) {
      std::this_thread::sleep_for(kLinkLook);
    }
  }
}

void JobLink::hear(const LinkMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

std::vector<LinkMessage> JobLink::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

// Whether node 0's server for this attempt accepts a connection. The server of the previous attempt may still run, but
// has another token.
bool JobLink::connect(std::string& why, const std::function<bool()>& goes_on) {
  try {
    store_ = std::make_unique<TcpStore>(TcpStoreOptions{
        .host = server_ != nullptr ? server_->host() : options_.host,
        .port = port_,
        .token = token_,
        .rank = options_.node == 0 ? -1 : kFirstLauncher + options_.node,
        .connect_timeout = kOneTry,
        .heartbeat_interval = std::min(milliseconds(1'000), options_.heartbeat_limit / 2),
        .heartbeat_limit = options_.heartbeat_limit,
        .goes_on = goes_on,
        .on_verdict =
            [this](const std::string& text) {
              if (server_ == nullptr) {
                hear({.kind = LinkMessage::Kind::verdict, .text = text});
              }
            },
        .on_lost =
            [this](const std::string& reason) { hear({.kind = LinkMessage::Kind::lost_launcher, .text = reason}); }});
    return true;
  } catch (const StoreError& error) {
    if (server_ != nullptr && error.kind() == StoreError::Kind::verdict) {
      throw;  // the server is new, so the verdict is about this attempt
    }
    why = error.what();
    why += attempt_ > 0 && error.kind() == StoreError::Kind::lost ? "; or node 0 is at another attempt" : "";
  }
  store_.reset();
  take();  // drops messages of the old connection
  return false;
}

void JobLink::compare(int node, const std::string& ranks) {
  const std::string ours = ranks_text(options_);
  if (ranks != ours) {
    const std::string text =
        fmt::format("node {} was started with {}, and node 0 with {}: the launchers of a job need the same numbers",
                    std::max(node, options_.node), node == 0 ? ours : ranks, node == 0 ? ranks : ours);
    publish(text);
    fail<ConfigError>("{}", text);
  }
}

int JobLink::wait_for_nodes(const SignalCatcher& signals, const std::function<void(const std::string&)>& note) {
  if (options_.nodes == 1) {
    return 0;
  }
  const Clock::time_point start = Clock::now();
  std::string why = "no answer yet";
  int signal = 0;
  bool said = false;
  Meeting meeting{.prefix = "tandem/run",
                  .rank = options_.node,
                  .size = options_.nodes,
                  .value = fmt::format("{} {}", run_id_, ranks_text(options_)),
                  .kind = Meeting::Kind::passing,
                  .deadline = start + options_.node_timeout};
  const auto look = [&] {
    if (store_ != nullptr) {
      why = fmt::format("{} of {} launchers are there", options_.nodes - ranks_missing(*store_, meeting).size(),
                        options_.nodes);
    }
  };
  meeting.check = [&](int node, const std::string& value) { compare(node, value.substr(value.find(' ') + 1)); };
  meeting.goes_on = [&] {
    if ((signal = signals.take_end()) != 0) {
      say_stopped("was stopped by " + signal_text(signal));
    } else if (!said && Clock::now() - start > kBeforeSaying) {
      said = true;
      look();
      note(fmt::format("node {} waits for the others at {}:{}: {}", options_.node, options_.host, port_, why));
    }
    return signal == 0;
  };
  const auto fail_late = [&] {
    look();
    fail_store(StoreError::Kind::timeout, "the launchers of {} nodes did not meet at {}:{} within {:.0f} s: {}",
               options_.nodes, options_.host, port_, std::chrono::duration<double>(Clock::now() - start).count(), why);
  };
  while (!connect(why, meeting.goes_on)) {
    if (signal != 0 || !meeting.goes_on()) {
      return signal;
    }
    if (Clock::now() >= meeting.deadline) {
      fail_late();
    }
    std::this_thread::sleep_for(kLinkLook);
  }
  const Met met = meet(*store_, meeting);
  if (signal != 0) {
    return signal;
  }
  if (met.values.empty()) {
    fail_late();
  }
  run_id_ = met.values.front().substr(0, met.values.front().find(' '));
  return 0;
}

void JobLink::publish(const std::string& verdict) {
  if (server_ != nullptr) {
    server_->publish_verdict(verdict);
  } else if (store_ != nullptr) {
    store_->announce_verdict(verdict.substr(0, 4096));
  }
}

void JobLink::say_stopped(const std::string& what) {
  if (options_.nodes > 1) {
    publish(fmt::format("{}{} {}", kLauncherOfNode, options_.node, what));
  }
}

void JobLink::report_done() {
  if (store_ != nullptr) {
    store_->add(kDone, 1);
  }
}

bool JobLink::all_done() { return store_ == nullptr || store_->try_get(kDone) == std::to_string(options_.nodes); }

}  // namespace tandem::inline v0::parallel
