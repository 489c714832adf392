#include <tandem/parallel/job/joined_group.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>
#include <tandem/parallel/comm/nccl/nccl.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/job/rank_end.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/meet.h>
#include <tandem/parallel/rendezvous/store.h>

// How a process becomes a rank, in JoinedGroup's constructor:
//
// 1. Rendezvous connects the process to the job's store. If the launcher has no store, rank 0 hosts the server.
// 2. The alarm works in both directions: a verdict from the server rings it, and an alarm on this rank reaches the
// server.
// 3. meet_all() waits for all ranks. Rank 0's value names the group, so that a rank of a failed try cannot join.
// 4. choose_backend() connects the ranks with each other.
//
// Every step has the same deadline. The destructor reverses the order: the group finishes, then the store says goodbye.

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;

CommError lost_store(const std::string& reason, const WorldInfo& world) {
  if (world.store_is_hosted) {
    return CommError(fmt::format("the job's launcher is gone: {} [TDM-E618]", reason), {.fault = CommFault::peer_lost});
  }
  return CommError(fmt::format("rank 0, which had the job's store, is lost: {} [TDM-E618]", reason),
                   {.fault = CommFault::peer_lost, .rank = 0});
}

// Empty on all ranks but the lowest that is there.
std::string line_about_missing(Store& store, const MeetingPlace& place, const Meeting& meeting) {
  const WorldInfo& world = place.world;
  constexpr int kManyRanks = 4096;  // too many to look for
  if (world.world_size > kManyRanks) {
    return world.rank == 0 ? fmt::format("rank 0 waits for the other {} ranks", world.world_size - 1) : std::string();
  }
  const std::vector<int> missing = GroupNames(place.numbers).ranks(ranks_missing_for_lowest(store, meeting));
  if (missing.empty()) {
    return {};
  }
  return fmt::format("waiting for rank{} {}; {} of {} are here", missing.size() == 1 ? "" : "s",
                     one_line(number_list(missing), 200), world.world_size - static_cast<int>(missing.size()),
                     world.world_size);
}

// Waits for all ranks. Returns the prefix of the group's keys, which rank 0 creates anew for each meeting.
std::string meet_all(Store& store, const MeetingPlace& place, Clock::time_point deadline, WaitingLines& lines) {
  const WorldInfo& world = place.world;
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
    lines.offer([&] { return line_about_missing(store, place, meeting); });
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
  met.missing = GroupNames(place.numbers).ranks(met.missing);
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
std::unique_ptr<Backend> choose_backend(std::string_view name, const MeetingPlace& place,
                                        const std::shared_ptr<Store>& store, const std::string& prefix,
                                        const std::shared_ptr<Alarm>& alarm, Clock::time_point deadline,
                                        WaitingLines& lines) {
  using std::chrono::milliseconds;
  check<ConfigError>(
      name.empty() || name == "gloo" || name == "nccl",
      "init_process_group: no backend is called \"{}\"; expected \"gloo\", \"nccl\", or none for the best [TDM-E607]",
      name);
  const WorldInfo& world = place.world;
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
                    .numbers = place.numbers,
                    .store_host = world.address,
                    .alarm = alarm,
                    .setup_timeout = left(),
                    .on_waiting = [&](const std::string& line) { lines.offer([&] { return line; }); }});
  if (name == "nccl" || (name.empty() && suits_nccl(world))) {
    return nccl_backend(std::move(gloo), core::thread_state().device, {.timeout = left()});
  }
  return cuda::is_available() ? staged_backend(std::move(gloo)) : std::move(gloo);
}

}  // namespace

void WaitingLines::offer(core::FunctionRef<std::string()> line) {
  if (Clock::now() < due_) {
    return;
  }
  due_ = Clock::now() + std::chrono::seconds(10);
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

CommError error_of(const StoreError& error) {
  return error.kind() == StoreError::Kind::verdict
             ? verdict_error(error.what())
             : CommError(fmt::format("init_process_group: {}", error.what()), {.fault = CommFault::init});
}

JoinedGroup::JoinedGroup(const InitOptions& options, const MeetingPlace& place)
    : world_(place.world), number_(GroupNames(place.numbers).rank(place.world.rank)), lines_(options.on_waiting) {
  const Clock::time_point deadline = Clock::now() + options.init_timeout;
  rendezvous_ = std::make_unique<Rendezvous>(
      place.method, world_,
      RendezvousOptions{.token = place.token,
                        .connect_timeout = options.init_timeout,
                        .heartbeat_interval = options.heartbeat_interval,
                        .heartbeat_limit = options.heartbeat_limit,
                        .on_waiting = [this](const std::string& reason) { wait_for_store(reason); },
                        .on_verdict = [this](const std::string& text) { hear(verdict_error(text)); },
                        .on_lost = [this](const std::string& reason) { hear(lost_store(reason, world_)); }});
  announcement_.emplace(alarm_->listen([this](const CommError& cause) { tell(cause); }));
  const std::string prefix = meet_all(*rendezvous_->store(), place, deadline, lines_);
  rendezvous_->settle();
  group_ = std::make_unique<ProcessGroup>(
      choose_backend(options.backend, place, rendezvous_->store(), prefix, alarm_, deadline, lines_),
      ProcessGroupOptions{.timeout = options.timeout});
}

void JoinedGroup::wait_for_store(const std::string& reason) {
  lines_.offer([&] {
    return fmt::format("rank {} of {} waits for {}, whose store is to be at {} ({})", number_, world_.world_size,
                       world_.store_is_hosted ? "the launcher" : "rank 0", at_port(world_.address, world_.port),
                       reason);
  });
}

void JoinedGroup::hear(const CommError& cause) {
  heard_ = true;
  alarm_->ring(cause);
}

void JoinedGroup::tell(const CommError& cause) {
  if (!heard_) {
    rendezvous_->announce_verdict(verdict_text(cause).substr(0, kMaxFrameText));
  }
}

}  // namespace tandem::inline v0::parallel
