#include <tandem/parallel/job/spawn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/carried_error.h>
#include <tandem/parallel/job/spawn_check.h>
#include <tandem/parallel/job/thread_generations.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/tensor/generator.h>

// Ranks as threads: one thread and one group for each rank (thread_generations.h). The thread carries the caller's
// state with its own device, random numbers and rank. A rank whose function has ended leaves and says how, so that the
// other ranks stop waiting for it. When all threads have ended, spawn() rethrows the exception of the lowest rank that
// did not merely lose another one.

namespace tandem::inline v0::parallel::detail {

namespace {

struct RankThread {
  std::unique_ptr<ProcessGroup> group;
  ThreadElasticRank elastic;
  RankContext context{};
  Generator generator;
  std::exception_ptr failure;
  bool lost_another = false;  // the rank failed because it lost another
  std::string how = "ended";
  std::thread thread;
};

// Call in a catch block: keeps the exception, with the rank in its text.
void note_failure(RankThread& rank, std::size_t index, std::size_t count) {
  rank.failure = std::current_exception();
  try {
    throw;
  } catch (Error& error) {
    rank.how = fmt::format("threw: {}", error.what());
    const auto* comm = dynamic_cast<const CommError*>(&error);
    rank.lost_another = comm != nullptr &&
                        (comm->details().fault == CommFault::peer_lost || comm->details().fault == CommFault::aborted);
    error.add_context(fmt::format("in rank {} of {}", index, count));
  } catch (const std::exception& error) {
    rank.how = fmt::format("threw: {}", error.what());
    try {
      throw_again(carried_type(error), fmt::format("{}\n  in rank {} of {}", error.what(), index, count));
    } catch (...) {
      rank.failure = std::current_exception();
    }
  } catch (...) {
    rank.how = "threw what is not a std::exception";
  }
}

std::vector<Device> devices_of(int ranks, const SpawnOptions& options) {
  std::vector<Device> devices = options.devices;
  for (int r = static_cast<int>(devices.size()); r < ranks; ++r) {
    devices.emplace_back(DeviceType::cpu, r);
  }
  for (const Device device : devices) {
    require_available(device);
  }
  return devices;
}

// Runs the rank's function in one generation. Returns the loss that ended the generation, if the function is to run in
// the next one.
std::optional<CommError> run_generation(RankThread& rank, int index, core::FunctionRef<void(ProcessGroup&)> body) {
  try {
    body(*rank.group);
    rank.group->wait_all();
    if (rank.context.elastic != nullptr && rank.group->queue()->is_dead()) {
      rank.group->barrier();  // throws: the function has caught the error of a loss, and did not come to its end
    }
    return std::nullopt;
  } catch (const CommError& error) {
    if (rank.context.elastic == nullptr || !is_survivable(error, index)) {
      throw;
    }
    return error;
  }
}

// Ranks that the others went on without.
void tell_of_lost(const std::vector<RankThread>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].failure) {
      core::warn(fmt::format("spawn: rank {} was lost, and the others went on: it {}", r, ranks[r].how));
    }
  }
}

void rethrow_root_cause(std::vector<RankThread>& ranks) {
  const auto first = [&](bool lost_another) {
    return std::find_if(ranks.begin(), ranks.end(),
                        [&](const RankThread& rank) { return rank.failure && rank.lost_another == lost_another; });
  };
  auto cause = first(false);
  cause = cause == ranks.end() ? first(true) : cause;
  if (cause != ranks.end()) {
    std::rethrow_exception(cause->failure);
  }
}

}  // namespace

void forget_failures(ProcessGroup& group) {
  try {
    group.wait_all();
  } catch (const CommError&) {
  }
}

void check_spawn(int ranks, const SpawnOptions& options) {
  check<ConfigError>(ranks >= 1, "spawn: {} ranks; expected at least 1", ranks);
  if (const char* variable = launcher_variable()) {
    fail<ConfigError>(
        "spawn: a launcher has already made this process rank {} ({} is set), and {} ranks in each of its processes "
        "are not meant: either start this program without the launcher, or call the function without spawn() "
        "[TDM-E610]",
        std::getenv(variable), variable, ranks);
  }
  check<ConfigError>(!is_initialized(), "spawn: called within a rank; ranks have no ranks of their own");
  check<ConfigError>(options.elastic >= 0 && options.elastic <= ranks,
                     "spawn: elastic is {}: expected 0, or how many of the {} ranks must be left for the others to go "
                     "on",
                     options.elastic, ranks);
  check<ConfigError>(options.devices.empty() || options.devices.size() == static_cast<std::size_t>(ranks),
                     "spawn: {} devices for {} ranks; expected one each, or none", options.devices.size(), ranks);
}

void seed_as_rank(Generator& generator, std::uint64_t seed, std::uint64_t offset, int rank) {
  generator.manual_seed(seed + 0xd1b54a32d192ed03U * static_cast<std::uint64_t>(rank));
  generator.set_offset(offset);
}

void spawn_threads(int count, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options) {
  check_spawn(count, options);
  const std::vector<Device> devices = devices_of(count, options);
  const bool is_elastic = options.elastic > 0;
  ThreadGenerations generations(count, is_elastic ? options.elastic : count, options.group);
  std::vector<RankThread> ranks(static_cast<std::size_t>(count));
  Generator& drawn_from = current_generator();
  const std::uint64_t offset = drawn_from.offset();

  const auto run = [&](std::size_t index, core::ThreadState state) {
    RankThread& rank = ranks[index];
    state.device = devices[index];
    state.generator = &rank.generator;
    state.rank = &rank.context;
    const core::ThreadStateScope carried(state);
    try {
      for (int generation = 0;; ++generation) {
        rank.context.group = rank.group.get();
        rank.elastic.begin(generation);
        seed_as_rank(rank.generator, drawn_from.seed(), offset, static_cast<int>(index));
        const std::optional<CommError> loss = run_generation(rank, static_cast<int>(index), body);
        if (!loss) {
          break;
        }
        forget_failures(*rank.group);
        std::unique_ptr<ProcessGroup> next = generations.take_next(static_cast<int>(index), *loss);
        rank.group = std::move(next);
      }
    } catch (...) {
      note_failure(rank, index, ranks.size());
    }
    generations.leave(static_cast<int>(index), rank.failure == nullptr, rank.how);
    if (rank.failure) {
      forget_failures(*rank.group);
    }
    rank.group.reset();
  };

  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].group = generations.take(static_cast<int>(r));
    ranks[r].context.elastic = is_elastic ? &ranks[r].elastic : nullptr;
  }
  std::string refused;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    try {
      ranks[r].thread = std::thread(run, r, core::thread_state());
    } catch (const std::system_error& error) {
      refused = core::system_message(error.code().value());
      generations.leave(static_cast<int>(r), false, "did not start");
    }
  }
  std::uint64_t drawn = 0;
  for (RankThread& rank : ranks) {
    if (rank.thread.joinable()) {
      rank.thread.join();
      drawn = std::max(drawn, rank.generator.offset() - offset);
    }
  }
  check<ConfigError>(refused.empty(), "spawn: the system refuses {} threads ({})", count, refused);
  drawn_from.reserve(drawn);
  const auto well = std::count_if(ranks.begin(), ranks.end(), [](const RankThread& rank) { return !rank.failure; });
  if (is_elastic && well >= options.elastic) {
    tell_of_lost(ranks);
  } else {
    rethrow_root_cause(ranks);
  }
}

}  // namespace tandem::inline v0::parallel::detail
