#include <tandem/parallel/job/process_group_guard.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>
#include <tandem/parallel/comm/nccl/nccl.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/job/rank_end.h>
#include <tandem/parallel/job/spawn.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/meet.h>
#include <tandem/parallel/rendezvous/rendezvous.h>
#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/tls.h>
#include <tandem/tensor/generator.h>

// How a process becomes a rank, in Job's constructor:
//
// 1. read_world() determines this process's rank from the arguments or a launcher's variables.
// 2. Rendezvous connects the process to the job's store. If the launcher has no store, rank 0 hosts the server.
// 3. The alarm works in both directions: a verdict from the server rings it, and an alarm on this rank reaches the
// server.
// 4. meet_all() waits for all ranks. Rank 0's value names the group, so that a rank of a failed try cannot join.
// 5. choose_backend() connects the ranks with each other.
//
// Every step has the same deadline. The destructor reverses the order: the group finishes, then the store says goodbye.

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

// Tells the user who is waited for.
class WaitingLines {
 public:
  explicit WaitingLines(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}

  /// Tells the line that `line` returns, unless that is empty, if it is time.
  template <class Line>
  void offer(const Line& line) {
    if (Clock::now() < due_) {
      return;
    }
    due_ = Clock::now() + kNext;
    const std::string text = line();
    if (text.empty()) {
      return;
    }
    if (tell_) {
      tell_(text);
    } else {
      std::fputs(fmt::format("tandem: {}\n", text).c_str(), stderr);
    }
  }

 private:
  static constexpr std::chrono::seconds kFirst{2};
  static constexpr std::chrono::seconds kNext{10};

  std::function<void(const std::string&)> tell_;
  Clock::time_point due_ = Clock::now() + kFirst;
};

// Empty on all ranks but the lowest that is there.
std::string line_about_missing(Store& store, const WorldInfo& world, const Meeting& meeting) {
  constexpr int kManyRanks = 4096;  // too many to look for
  if (world.world_size > kManyRanks) {
    return world.rank == 0 ? fmt::format("rank 0 waits for the other {} ranks", world.world_size - 1) : std::string();
  }
  const std::vector<int> missing = ranks_missing_for_lowest(store, meeting);
  if (missing.empty()) {
    return {};
  }
  return fmt::format("waiting for rank{} {}; {} of {} are here", missing.size() == 1 ? "" : "s",
                     one_line(number_list(missing), 200), world.world_size - static_cast<int>(missing.size()),
                     world.world_size);
}

// Waits for all ranks. Returns the prefix of the group's keys, which rank 0 creates anew for each meeting.
std::string meet_all(Store& store, const WorldInfo& world, Clock::time_point deadline, WaitingLines& lines) {
  const auto size_in = [](const std::string& value) { return value.substr(0, value.find(' ')); };
  const auto compare = [&](int rank, const std::string& value) {
    if (const std::string size = size_in(value); size != std::to_string(world.world_size)) {
      throw CommError(
          fmt::format("init_process_group: rank {} was started as one of {} ranks, and rank {} as one of {}", rank,
                      size, world.rank, world.world_size),
          {.fault = CommFault::init, .rank = rank});
    }
  };
  Meeting meeting{.prefix = "group",
                  .rank = world.rank,
                  .size = world.world_size,
                  .value = fmt::format("{} {}", world.world_size, random_name()),
                  .kind = Meeting::Kind::again,
                  .deadline = deadline,
                  .check = compare};
  meeting.goes_on = [&] {
    lines.offer([&] { return line_about_missing(store, world, meeting); });
    return true;
  };
  Met met;
  try {
    met = meet(store, meeting);
  } catch (const StoreError& error) {
    if (error.kind() != StoreError::Kind::timeout) {
      throw;
    }
    met.missing = {0};
  }
  if (!met.missing.empty()) {
    throw CommError(fmt::format("init_process_group: {} of {} ranks did not come in time: {}. Was the job started on "
                                "all hosts, with the same number of ranks, address and port? If they only need longer "
                                "to start, raise InitOptions::init_timeout",
                                met.missing.size(), world.world_size, one_line(number_list(met.missing), 200)),
                    {.fault = CommFault::init, .rank = met.missing.front()});
  }
  const std::string& leaders = met.values.front();
  return fmt::format("group/{}/", leaders.substr(size_in(leaders).size() + 1));
}

// Whether to choose NCCL if the user names no backend: each rank has its own GPU, as far as this rank can see.
bool suits_nccl(const WorldInfo& world) {
  return core::thread_state().device.type == DeviceType::cuda && world.local_world_size <= cuda::device_count() &&
         why_nccl_is_unavailable().empty();
}

// Connects this rank with the others by the named backend, or by the best one available.
std::unique_ptr<Backend> choose_backend(std::string_view name, const WorldInfo& world,
                                        const std::shared_ptr<Store>& store, const std::string& prefix,
                                        const std::shared_ptr<Alarm>& alarm, Clock::time_point deadline,
                                        WaitingLines& lines) {
  using std::chrono::milliseconds;
  check<ConfigError>(
      name.empty() || name == "gloo" || name == "nccl",
      "init_process_group: no backend is called \"{}\"; expected \"gloo\", \"nccl\", or none for the best", name);
  if (name.empty() && world.world_size == 1) {
    return std::make_unique<LocalBackend>(
        std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), std::vector<int>{0}), 0);
  }
  const auto left = [&] { return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1)); };
  std::unique_ptr<Backend> gloo =
      gloo_backend({.store = store,
                    .prefix = prefix + "gloo",
                    .rank = world.rank,
                    .size = world.world_size,
                    .store_host = world.address,
                    .alarm = alarm,
                    .setup_timeout = left(),
                    .on_waiting = [&](const std::string& line) { lines.offer([&] { return line; }); }});
  if (name == "nccl" || (name.empty() && suits_nccl(world))) {
    return nccl_backend(std::move(gloo), core::thread_state().device, {.timeout = left()});
  }
  return cuda::is_available() ? staged_backend(std::move(gloo)) : std::move(gloo);
}

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

std::vector<BackendInfo> backends() {
  const std::string gpus = cuda::is_available() ? "CPU devices and GPUs" : "CPU devices";
  const std::string no_nccl = why_nccl_is_unavailable();
  return {
      {"local", true, fmt::format("ranks as threads of one process, on {}", gpus)},
      {"gloo", has_gloo(),
       has_gloo() ? fmt::format("ranks as processes on one or many hosts, on {}", gpus)
                  : "built without Gloo: apt-get install libgloo-dev, and build tandem again in a fresh build folder"},
      {"nccl", no_nccl.empty(), no_nccl.empty() ? "ranks as processes, on a GPU each" : no_nccl},
  };
}

struct ProcessGroupGuard::Job {
  WorldInfo world;
  std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();
  std::atomic<bool> heard = false;  // another rank caused the alarm
  WaitingLines lines;
  std::unique_ptr<Rendezvous> rendezvous;
  std::optional<Alarm::Subscription> announcement;
  std::unique_ptr<ProcessGroup> group;
  RankContext context{};

  explicit Job(const InitOptions& options) : lines(options.on_waiting) {
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
                          .on_waiting = [this](const std::string& reason) { wait_for_store(reason); },
                          .on_verdict = [this](const std::string& text) { hear(verdict_error(text)); },
                          .on_lost = [this](const std::string& reason) { hear(lost_store(reason, world)); }});
    announcement.emplace(alarm->listen([this](const CommError& cause) { tell(cause); }));
    const std::string prefix = meet_all(*rendezvous->store(), world, deadline, lines);
    rendezvous->settle();
    group = std::make_unique<ProcessGroup>(
        choose_backend(options.backend, world, rendezvous->store(), prefix, alarm, deadline, lines),
        ProcessGroupOptions{.timeout = options.timeout});
    context.group = group.get();
  }

  void wait_for_store(const std::string& reason) {
    lines.offer([&] {
      return fmt::format("rank {} of {} waits for {}, whose store is to be at {} ({})", world.rank, world.world_size,
                         world.store_is_hosted ? "the launcher" : "rank 0", at_port(world.address, world.port), reason);
    });
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
  detail::seed_as_rank(generator, generator.seed(), generator.offset(), job_->world.rank);
  set_process_rank(&job_->context);
}

ProcessGroupGuard::~ProcessGroupGuard() {
  core::failpoint("leave");
  set_process_rank(nullptr);
  job_.reset();
  joined = false;
}

ProcessGroup& ProcessGroupGuard::group() const noexcept { return *job_->group; }

const WorldInfo& ProcessGroupGuard::world() const noexcept { return job_->world; }

namespace {

struct TheGuard {
  TheGuard() { load_tls(); }  // loaded first, so OpenSSL outlives the guard
  std::mutex mutex;
  std::unique_ptr<ProcessGroupGuard> guard;
};

// Created by its first use, and so destroyed before the objects that the guard needs.
TheGuard& the_guard() {
  static TheGuard guard;
  return guard;
}

// Handles exit() in the middle of a job: the other ranks must not mistake it for a goodbye. Runs before the guard's
// destructor.
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
