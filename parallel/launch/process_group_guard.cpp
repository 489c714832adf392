#include <tandem/parallel/launch/process_group_guard.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/rank.h>
#include <tandem/parallel/comm/verdict.h>
#include <tandem/parallel/launch/choose_backend.h>
#include <tandem/parallel/launch/rank_seed.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/init_method.h>
#include <tandem/parallel/rendezvous/rendezvous.h>
#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/tls.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> joined{false};

CommError lost_store(const std::string& reason, const WorldInfo& world) {
  if (world.store_is_hosted) {
    return CommError(fmt::format("the job's launcher is gone: {}", reason), {.fault = CommFault::peer_lost});
  }
  return CommError(fmt::format("rank 0, which had the job's store, is lost: {}", reason),
                   {.fault = CommFault::peer_lost, .rank = 0});
}

// "1, 4, 5 and 7 more".
std::string list(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(ranks.size(), kShown);
  std::string text =
      fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return ranks.size() == shown ? text : fmt::format("{} and {} more", text, ranks.size() - shown);
}

std::string random_text() { return JobToken::generate().hex().substr(0, 16); }

// All ranks at once. Rank 0 makes a name for their group's keys, anew each time it tries; the others say under that
// name that they are there, each with a text of its own, and go on when rank 0 shows it. So what is left of a try that
// failed, on some ranks or all, is in nobody's way, and nobody counts.
class Meeting {
 public:
  Meeting(Store& store, const WorldInfo& world, Clock::time_point deadline)
      : store_(store), world_(world), deadline_(deadline) {}

  /// The prefix of the group's keys. Throws CommError that names who is not there in time.
  std::string run() {
    try {
      return world_.rank == 0 ? lead() : follow();
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      throw missing_error({0});  // who names the group
    }
  }

 private:
  static constexpr std::chrono::milliseconds kSlice{200};
  static constexpr const char* kName = "group/name";

  static std::string prefix_of(const std::string& name) { return fmt::format("group/{}/", name); }
  static std::string here(const std::string& prefix, int rank) { return fmt::format("{}here/{}", prefix, rank); }
  static std::string met(const std::string& prefix) { return prefix + "met"; }
  std::string own_size() const { return std::to_string(world_.world_size); }

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()));
  }

  std::string lead() {
    if (const auto before = store_.try_get(kName)) {
      store_.erase(met(prefix_of(*before)));
    }
    const std::string name = random_text();
    const std::string prefix = prefix_of(name);
    store_.set(here(prefix, 0), own_size());
    store_.set(kName, name);
    std::string texts;
    for (int rank = 1; rank < world_.world_size; ++rank) {
      std::optional<std::string> theirs;  // its text, and how many ranks it knows of
      while (!theirs) {
        if (!appears(here(prefix, rank), left())) {
          fail_missing(prefix);
        }
        theirs = store_.try_get(here(prefix, rank));  // none: it has just given up
      }
      const std::size_t end = theirs->find(' ');
      check_size(rank, theirs->substr(end + 1));
      texts += theirs->substr(0, end) + " ";
    }
    store_.set(met(prefix), texts);
    store_.erase(here(prefix, 0));
    return prefix;
  }

  std::string follow() {
    const std::string text = random_text();
    for (std::string name;;) {
      const std::string now = store_.get(kName, left());
      const std::string prefix = prefix_of(now);
      if (now != name) {
        name = now;
        const auto size = store_.try_get(here(prefix, 0));
        store_.set(here(prefix, world_.rank), fmt::format("{} {}", text, world_.world_size));
        if (size) {
          check_size(0, *size);
        }
      }
      if (appears(met(prefix), std::min(kSlice, left()))) {
        const auto shown = store_.try_get(met(prefix));
        if (shown && shown->find(text) != std::string::npos) {
          store_.erase(here(prefix, world_.rank));
          return prefix;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // of an earlier try
      }
      if (Clock::now() >= deadline_) {
        fail_missing(prefix);
      }
    }
  }

  bool appears(const std::string& key, std::chrono::milliseconds timeout) {
    try {
      store_.wait(std::vector{key}, timeout);
      return true;
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      return false;
    }
  }

  void check_size(int rank, const std::string& size) const {
    if (size != own_size()) {
      throw CommError(
          fmt::format("init_process_group: rank {} was started as one of {} ranks, and rank {} as one of {}", rank,
                      size, world_.rank, world_.world_size),
          {.fault = CommFault::init, .rank = rank});
    }
  }

  [[noreturn]] void fail_missing(const std::string& prefix) {
    std::vector<int> missing;
    for (int rank = 0; rank < world_.world_size; ++rank) {
      if (rank != world_.rank && !store_.try_get(here(prefix, rank))) {
        missing.push_back(rank);
      }
    }
    store_.erase(here(prefix, world_.rank));
    throw missing_error(missing.empty() ? std::vector{0} : missing);
  }

  CommError missing_error(const std::vector<int>& missing) const {
    return CommError(fmt::format("init_process_group: {} of {} ranks did not come in time: {}. Was the job started on "
                                 "all hosts, with the same number of ranks, address and port? If they only need longer "
                                 "to start, raise InitOptions::init_timeout",
                                 missing.size(), world_.world_size, list(missing)),
                     {.fault = CommFault::init, .rank = missing.empty() ? -1 : missing.front()});
  }

  Store& store_;
  const WorldInfo& world_;
  Clock::time_point deadline_;
};

void check_options(const InitOptions& options) {
  using namespace std::chrono_literals;
  check<ConfigError>(options.init_timeout >= 1ms && options.init_timeout <= 12h,
                     "init_process_group: init_timeout is {} ms; expected 1 ms to 12 hours",
                     options.init_timeout.count());
  check<ConfigError>(
      options.heartbeat_interval >= 1ms && options.heartbeat_limit <= 24h &&
          options.heartbeat_limit >= 2 * options.heartbeat_interval,
      "init_process_group: heartbeat_interval is {} ms and heartbeat_limit {} ms; expected 1 ms or more, "
      "and two intervals to 24 hours",
      options.heartbeat_interval.count(), options.heartbeat_limit.count());
}

}  // namespace

struct ProcessGroupGuard::Job {
  WorldInfo world;
  std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();
  std::atomic<bool> heard = false;  // what the alarm rings for came from the others
  std::unique_ptr<Rendezvous> rendezvous;
  std::optional<Alarm::Subscription> announcement;
  std::unique_ptr<ProcessGroup> group;
  RankContext context{};

  explicit Job(const InitOptions& options) {
    check_options(options);
    const InitMethod method = parse_init_method(options.init_method);
    world = read_world(method, {.rank = options.rank, .world_size = options.world_size});
    const Clock::time_point deadline = Clock::now() + options.init_timeout;
    rendezvous = std::make_unique<Rendezvous>(
        method, world,
        RendezvousOptions{.token = options.token ? options.token : JobToken::from_environment(),
                          .connect_timeout = options.init_timeout,
                          .heartbeat_interval = options.heartbeat_interval,
                          .heartbeat_limit = options.heartbeat_limit,
                          .on_verdict = [this](const std::string& text) { hear(verdict_error(text)); },
                          .on_lost = [this](const std::string& reason) { hear(lost_store(reason, world)); }});
    announcement.emplace(alarm->listen([this](const CommError& cause) { tell(cause); }));
    const std::string prefix = Meeting(*rendezvous->store(), world, deadline).run();
    rendezvous->settle();
    group = std::make_unique<ProcessGroup>(
        choose_backend(options.backend, world, rendezvous->store(), prefix, alarm, deadline),
        ProcessGroupOptions{.timeout = options.timeout});
    context.group = group.get();
  }

  void hear(const CommError& cause) {
    heard = true;
    alarm->ring(cause);
  }

  void tell(const CommError& cause) {
    if (!heard) {
      rendezvous->announce_verdict(verdict_text(cause).substr(0, kMaxFrameText));
    }
  }
};

ProcessGroupGuard::ProcessGroupGuard(const InitOptions& options) {
  check<ConfigError>(!is_initialized(),
                     "init_process_group: this {} a rank already; one process is one rank of one job, and ranks of "
                     "spawn() have their group",
                     joined ? "process is" : "thread is");
  check<ConfigError>(!joined.exchange(true), "init_process_group: another thread of this process is at it");
  try {
    try {
      job_ = std::make_unique<Job>(options);
    } catch (const StoreError& error) {
      if (error.kind() == StoreError::Kind::verdict) {
        throw verdict_error(error.what());
      }
      throw CommError(fmt::format("init_process_group: {}", error.what()), {.fault = CommFault::init});
    }
  } catch (...) {
    joined = false;
    throw;
  }
  Generator& generator = current_generator();
  const std::uint64_t offset = generator.offset();
  generator.manual_seed(seed_of_rank(generator.seed(), static_cast<std::uint64_t>(job_->world.rank)));
  generator.set_offset(offset);
  set_process_rank(&job_->context);
  if (job_->world.rank == 0 && job_->world.source != WorldInfo::Source::single_process) {
    fmt::print(stderr, "tandem: {}; {}\n", describe(job_->world), job_->group->backend());
  }
}

ProcessGroupGuard::~ProcessGroupGuard() {
  set_process_rank(nullptr);
  job_.reset();
  joined = false;
}

ProcessGroup& ProcessGroupGuard::group() const noexcept { return *job_->group; }

const WorldInfo& ProcessGroupGuard::world() const noexcept { return job_->world; }

namespace {

struct TheGuard {
  TheGuard() { load_tls(); }  // which is there then until the guard is gone
  std::mutex mutex;
  std::unique_ptr<ProcessGroupGuard> guard;
};

// Made by its first use, and so gone before what the guard needs.
TheGuard& the_guard() {
  static TheGuard guard;
  return guard;
}

// exit() in the middle of a job: the others are not to take it for a goodbye. Runs before the guard goes.
void tell_of_exit(int status, void*) {
  TheGuard& the = the_guard();
  const std::unique_lock lock(the.mutex, std::try_to_lock);
  if (status != 0 && lock && the.guard != nullptr) {
    the.guard->group().abort(fmt::format("its process (pid {}) ended with exit code {}", ::getpid(), status));
  }
}

}  // namespace

void init_process_group(const InitOptions& options) {
  TheGuard& the = the_guard();
  const std::lock_guard lock(the.mutex);
  [[maybe_unused]] static const int registered = ::on_exit(tell_of_exit, nullptr);
  the.guard = std::make_unique<ProcessGroupGuard>(options);
}

void destroy_process_group() {
  TheGuard& the = the_guard();
  const std::lock_guard lock(the.mutex);
  check<ConfigError>(the.guard != nullptr, "destroy_process_group: there is none; init_process_group() makes it");
  the.guard.reset();
}

}  // namespace tandem::inline v0::parallel
