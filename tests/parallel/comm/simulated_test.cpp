#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/rendezvous/meet.h>
#include <tandem/tandem.h>

#include "parallel/simulated_world.h"

// The reducer and the rendezvous in worlds whose ranks are late, fall silent or die, as seeds decide. TANDEM_WORLDS
// sets the number of worlds (default 1000), TANDEM_WORLD_SEED the first seed; a failure prints the seed.

namespace tandem::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 8;
constexpr int kCallsOfATraining = 70;
constexpr int kCallsOfAMeeting = 8;
constexpr auto kNoWait = 20s;       // a world without silence ends long before
constexpr auto kOfSilence = 500ms;  // until silence counts as a loss

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Runs the worlds of all seeds, a few at once, until one is wrong.
void for_all_worlds(const std::function<std::string(std::uint64_t seed)>& what_is_wrong) {
  const std::uint64_t first = number_of("TANDEM_WORLD_SEED", 1);
  const std::uint64_t end = first + number_of("TANDEM_WORLDS", 1'000);
  std::atomic<std::uint64_t> next{first};
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t seed = next++; seed < end; seed = next++) {
        if (const std::string wrong = what_is_wrong(seed); !wrong.empty()) {
          const std::lock_guard lock(mutex);
          ADD_FAILURE() << "TANDEM_WORLDS=1 TANDEM_WORLD_SEED=" << seed << ": " << wrong;
          next = end;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A rank's view of a training.
struct Seen {
  std::vector<std::vector<float>> weights;  // after each step
  std::optional<CommError> error;
};

struct Net : nn::Module<Net> {
  nn::Linear fc1 = child("fc1", nn::Linear(3, 5));
  nn::Linear fc2 = child("fc2", nn::Linear(5, 2));
  nn::Linear sometimes = child("sometimes", nn::Linear(5, 2));
  Tensor forward(const Tensor& x, bool uses_all) const {
    const Tensor h = relu(fc1(x));
    return uses_all ? fc2(h) + sometimes(h) : fc2(h);
  }
};

// Steps with several buckets, a parameter that is not always used, and one step without reduction.
void train(parallel::ProcessGroup& group, Seen& seen) {
  Net model;
  optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  parallel::DistributedDataParallel ddp(
      model, {.process_group = &group, .bucket_cap_mb = 0.0, .find_unused_parameters = true});
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    if (step == 3) {
      const auto local = ddp.no_sync();
      ddp(full({2, 3}, 0.5), true).sum().backward();
    }
    ddp(full({2, 3}, 0.1 * (group.rank() + 1) * (step + 1)), step % 2 == 0).sum().backward();
    sgd.step();
    seen.weights.push_back(model.fc1.weight.to_vector<float>());
  }
}

std::vector<Seen> train_in_world(const Schedule& schedule, int ranks,
                                 std::vector<std::shared_ptr<SimulatedRank>>& fates) {
  const auto world = std::make_shared<parallel::LocalWorld>(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto local = std::make_shared<parallel::LocalGroup>(world, members);
  std::vector<Seen> seen(members.size());
  std::vector<std::thread> threads;
  for (const int rank : members) {
    fates.push_back(std::make_shared<SimulatedRank>(schedule, rank));
  }
  for (const int rank : members) {
    threads.emplace_back([&, rank] {
      Seen& mine = seen[static_cast<std::size_t>(rank)];
      try {
        parallel::ProcessGroup group(
            std::make_unique<SimulatedBackend>(std::make_unique<parallel::LocalBackend>(local, rank),
                                               fates[static_cast<std::size_t>(rank)]),
            {.timeout = schedule.fate() == Fate::silent ? kOfSilence : std::chrono::milliseconds(kNoWait)});
        const parallel::RankContext context{&group};
        Generator generator(3);
        const core::ThreadStateScope scope({.generator = &generator, .rank = &context});
        train(group, mine);
      } catch (const CommError& error) {
        mine.error.emplace(error);
      }
      world->leave(rank, "ended");
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return seen;
}

const std::vector<std::vector<float>>& expected_weights(int ranks) {
  static std::mutex mutex;
  static std::map<int, std::vector<std::vector<float>>> known;
  const std::lock_guard lock(mutex);
  if (!known.contains(ranks)) {
    parallel::spawn(ranks,
                    [&](parallel::ProcessGroup& group) {
                      Generator generator(3);
                      const GeneratorScope scope(generator);
                      Seen seen;
                      train(group, seen);
                      if (group.rank() == 0) {
                        known[ranks] = seen.weights;
                      }
                    },
                    {.devices = std::vector<Device>(static_cast<std::size_t>(ranks), "cpu:0")});
  }
  return known[ranks];
}

std::string training_in(std::uint64_t seed) {
  const int ranks = 2 + static_cast<int>(seed % 3);
  const Schedule schedule(seed, ranks, kCallsOfATraining);
  std::vector<std::shared_ptr<SimulatedRank>> fates;
  const auto start = Clock::now();
  const std::vector<Seen> seen = train_in_world(schedule, ranks, fates);
  const bool is_struck = schedule.victim() >= 0 && fates[static_cast<std::size_t>(schedule.victim())]->is_struck();
  if (Clock::now() - start > kNoWait) {
    return "it took too long";
  }
  const auto& expected = expected_weights(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const Seen& mine = seen[static_cast<std::size_t>(rank)];
    if (mine.weights.size() > expected.size() ||
        !std::equal(mine.weights.begin(), mine.weights.end(), expected.begin())) {
      return fmt::format("rank {} has other weights", rank);
    }
    if (mine.error.has_value() != (mine.weights.size() < expected.size())) {
      return fmt::format("rank {} made {} steps: {}", rank, mine.weights.size(),
                         mine.error ? mine.error->what() : "no error");
    }
    if (mine.error && (!is_struck || std::string(mine.error->what()).find(fmt::format("rank {}", schedule.victim())) ==
                                         std::string::npos)) {
      return fmt::format("rank {} of {}, victim {}: {}", rank, ranks, schedule.victim(), mine.error->what());
    }
  }
  return {};
}

TEST(SimulatedWorld, TrainsAsAnyOtherOrNamesTheRankThatIsLost) { for_all_worlds(training_in); }

std::string meeting_in(std::uint64_t seed) {
  const int ranks = 2 + static_cast<int>(seed % 4);
  const Schedule schedule(seed, ranks, kCallsOfAMeeting);
  const auto kind = static_cast<parallel::Meeting::Kind>(seed / 4 % 3);
  const auto real = std::make_shared<parallel::MemoryStore>();
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::unique_ptr<SimulatedRank>> fates;
  for (int rank = 0; rank < ranks; ++rank) {
    fates.push_back(std::make_unique<SimulatedRank>(schedule, rank));
  }
  std::vector<std::optional<parallel::Met>> met(count);
  std::vector<std::string> expected;
  std::vector<std::thread> threads;
  const auto deadline = Clock::now() + (schedule.victim() < 0 ? std::chrono::milliseconds(kNoWait) : 60ms);
  for (int rank = 0; rank < ranks; ++rank) {
    expected.push_back(fmt::format("value {}", rank));
    threads.emplace_back([&, rank, value = expected.back()] {
      SimulatedStore store(real, *fates[static_cast<std::size_t>(rank)]);
      try {
        met[static_cast<std::size_t>(rank)] = parallel::meet(
            store, {.prefix = "m", .rank = rank, .size = ranks, .value = value, .kind = kind, .deadline = deadline});
      } catch (const SimulatedStore::Died&) {
      } catch (const parallel::StoreError&) {  // a silent rank's own deadline
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (Clock::now() > deadline + 5s) {
    return "it took too long";
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& mine = met[static_cast<std::size_t>(rank)];
    if (rank == schedule.victim()) {
      continue;
    }
    if (!mine) {
      return fmt::format("rank {} failed", rank);
    }
    // All that have met know all values. The others miss somebody: the victim, or a rank that gave up before them.
    if (mine->values.empty() ? mine->missing.empty() || schedule.victim() < 0 : mine->values != expected) {
      return fmt::format("rank {} of {}, victim {} at call {}: {} values, missing {}", rank, ranks, schedule.victim(),
                         schedule.fatal_call(), mine->values.size(), mine->missing.size());
    }
  }
  return {};
}

TEST(SimulatedWorld, MeetsOrKnowsWhoIsMissing) { for_all_worlds(meeting_in); }

}  // namespace
}  // namespace tandem::test
