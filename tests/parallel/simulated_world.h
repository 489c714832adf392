#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tandem.h>

// Ranks as threads whose backend and store misbehave as a seed says: calls are late, a rank falls silent, or one dies.
// Everything above the backend and the store is the real code.

namespace tandem::test {

/// The fate of a rank at one of its calls.
enum class Fate : std::uint8_t {
  none,
  late,    // the call comes after a pause
  silent,  // the call never comes, and the rank lives: its messages are lost
  dead,    // the rank ends without a goodbye
};

/// The fates of all ranks, by seed. At most one rank of a world is silent or dies, in one of its first `calls` calls.
class Schedule {
 public:
  Schedule(std::uint64_t seed, int ranks, int calls) : seed_(seed) {
    std::mt19937_64 random(seed);
    lateness_ = random() % 3 == 0 ? 0.0 : 0.2;
    if (random() % 4 != 0) {
      victim_ = static_cast<int>(random() % static_cast<unsigned>(ranks));
      fatal_call_ = static_cast<std::int64_t>(random() % static_cast<unsigned>(calls));
      fate_ = random() % 24 == 0 ? Fate::silent : Fate::dead;  // silence costs a whole timeout
    }
  }

  /// The fate of this rank at its call with this number, from 0.
  Fate at(int rank, std::int64_t call) const {
    if (rank == victim_ && call == fatal_call_) {
      return fate_;
    }
    std::minstd_rand random = generator(rank, call);
    return std::uniform_real_distribution<>()(random) < lateness_ ? Fate::late : Fate::none;
  }
  std::chrono::microseconds pause(int rank, std::int64_t call) const {
    return std::chrono::microseconds(generator(rank, call)() % 300);
  }
  int victim() const { return victim_; }
  Fate fate() const { return fate_; }
  std::int64_t fatal_call() const { return fatal_call_; }

 private:
  std::minstd_rand generator(int rank, std::int64_t call) const {
    std::seed_seq words{seed_, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(call)};
    return std::minstd_rand(words);
  }

  std::uint64_t seed_ = 0;
  double lateness_ = 0;
  int victim_ = -1;  // none
  std::int64_t fatal_call_ = -1;
  Fate fate_ = Fate::none;
};

/// One rank's way through a schedule.
class SimulatedRank {
 public:
  SimulatedRank(const Schedule& schedule, int rank) : schedule_(&schedule), rank_(rank) {}

  /// Call before each call of the rank to the outside. Waits out lateness, and silence until `is_over`. Returns whether
  /// the rank dies here.
  bool dies(const std::function<bool()>& is_over) {
    const std::int64_t call = calls_.fetch_add(1);
    const Fate fate = schedule_->at(rank_, call);
    if (fate == Fate::late) {
      std::this_thread::sleep_for(schedule_->pause(rank_, call));
    }
    while (fate == Fate::silent && !is_over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return fate == Fate::dead;
  }
  /// Whether its fatal call has come.
  bool is_struck() const { return calls_ > schedule_->fatal_call(); }

 private:
  const Schedule* schedule_;
  int rank_;
  std::atomic<std::int64_t> calls_{0};
};

/// A backend whose calls suffer the fate of its rank.
class SimulatedBackend final : public parallel::Backend {
 public:
  SimulatedBackend(std::unique_ptr<parallel::Backend> real, std::shared_ptr<SimulatedRank> rank)
      : Backend(real->names()), real_(std::move(real)), rank_(std::move(rank)) {}

  std::string_view name() const noexcept override { return "simulated"; }
  int rank() const noexcept override { return real_->rank(); }
  int size() const noexcept override { return real_->size(); }
  bool shares_memory() const noexcept override { return real_->shares_memory(); }
  std::string refusal(const parallel::Collective& call) const override { return real_->refusal(call); }
  void exchange(const parallel::Collective& mine, std::span<parallel::Collective> all,
                const parallel::CallTime& time) override {
    suffer();
    real_->exchange(mine, all, time);
  }
  void run(const parallel::Collective& call, const parallel::Buffers& buffers,
           const parallel::CallTime& time) override {
    suffer();
    real_->run(call, buffers, time);
  }
  std::unique_ptr<parallel::Backend> split(std::span<const int> members, const parallel::CallTime& time) override {
    suffer();
    auto part = real_->split(members, time);
    return part ? std::make_unique<SimulatedBackend>(std::move(part), rank_) : nullptr;
  }
  bool await_message(const parallel::Collective& call, const parallel::CallTime& time) override {
    return real_->await_message(call, time);
  }
  void interrupt() noexcept override { real_->interrupt(); }
  void abort(const CommError& cause) noexcept override { real_->abort(cause); }
  std::optional<CommError> failure() const override { return real_->failure(); }

 private:
  // Other ranks learn of a death as from a transport, whose connection closes.
  void suffer() {
    if (rank_->dies([&] { return real_->failure().has_value(); })) {
      const CommError error(fmt::format("rank {} has died", rank()), {.fault = CommFault::peer_lost, .rank = rank()});
      real_->abort(error);
      throw error;
    }
  }

  std::unique_ptr<parallel::Backend> real_;
  std::shared_ptr<SimulatedRank> rank_;
};

/// A store whose calls suffer the fate of one rank. A rank that dies throws Died.
class SimulatedStore final : public parallel::Store {
 public:
  struct Died {};
  SimulatedStore(std::shared_ptr<parallel::Store> real, SimulatedRank& rank) : real_(std::move(real)), rank_(&rank) {}

 private:
  static std::chrono::milliseconds until(Deadline deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }
  // A silent rank's call would end at its deadline, up to a minute later, which a simulation need not wait for.
  void suffer(Deadline deadline) {
    const auto end = std::min(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
    if (rank_->dies([&] { return std::chrono::steady_clock::now() > end; })) {
      throw Died();
    }
  }
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override {
    suffer(deadline);
    real_->set(key, value, until(deadline));
  }
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override {
    suffer(deadline);
    const auto found =
        wait ? real_->get_while(key, until(deadline), [] { return true; }) : real_->try_get(key, until(deadline));
    if (found && value != nullptr) {
      *value = *found;
    }
    return found.has_value();
  }
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    suffer(deadline);
    return real_->add(key, amount, until(deadline));
  }
  bool do_erase(std::string_view key, Deadline deadline) override {
    suffer(deadline);
    return real_->erase(key, until(deadline));
  }

  std::shared_ptr<parallel::Store> real_;
  SimulatedRank* rank_;
};

}  // namespace tandem::test
