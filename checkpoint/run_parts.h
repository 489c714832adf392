#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/checkpoint/run.h>

// Internal: everything that a run tracks, and the state that it makes up.
//
// A checkpoint has the tensors of each part under "<part>.<name>". Parts that each rank has for itself, and the random
// numbers, are under "rank.<rank>.<part>.<name>".

namespace tandem::inline v0::checkpoint {

/// A rank's place among the ranks of the run.
struct RunPlace {
  int rank = 0;
  int size = 1;
};

/// The parts of one rank, in the order in which they were tracked.
class RunParts {
 public:
  explicit RunParts(RunPlace place) : place_(place) {}

  /// Parts will be restored from `state`, the checkpoint `path` of a run with so many ranks. With `is_own` this rank's
  /// own parts in it are this rank's, whatever their number, or not there.
  void restore_from(StateDict state, std::string path, int saved_ranks, bool is_own = false);
  bool has(const std::string& name) const;
  /// Adds a part, and restores it. Throws ConfigError if the checkpoint lacks it, and the errors of its load().
  void add(detail::Part part);
  /// Restores the random numbers, if the checkpoint has some of this rank: a new rank begins with its own.
  void restore_random() const;
  /// Everything is tracked. Throws ConfigError if the checkpoint has a part more.
  void finish_restoring();

  const std::vector<detail::Part>& list() const noexcept { return parts_; }
  /// The parameters of all modules: "model.fc1.weight".
  nn::NamedTensors parameters() const;
  /// The first tensor of a snapshot that must not be saved: a parameter or an optimiser's value that is not finite, or
  /// a buffer with NaN. Empty: there is none.
  std::string first_bad(const StateDict& snapshot) const;
  /// The state that all ranks have in common: of models, optimisers and averages, which is large. Refers to the
  /// training's tensors, which go on changing.
  StateDict large_state() const;
  /// The rest of what all ranks have in common, and the options of the optimisers' groups, copied.
  StateDict small_state() const;
  /// A copy of the state that belongs to this rank alone.
  StateDict own_state() const;
  /// On a rank that writes nothing: helps the others to the parts that ranks share out.
  void help_with_snapshot() const;
  /// A copy of what this rank writes, given what all ranks have for themselves. With `sharded`, ranks share the rest.
  StateDict snapshot(const std::vector<StateDict>& of_ranks, bool sharded) const;

 private:
  RunPlace place_;
  std::vector<detail::Part> parts_;
  StateDict loaded_;
  std::string loaded_path_;  // empty: there is no checkpoint
  Tensor random_;            // of this rank in the checkpoint
  int saved_ranks_ = 0;
  bool is_own_ = false;
};

/// A part of numbers that the loop adds up.
detail::Part part_of(const std::string& name, std::int64_t& number);
detail::Part part_of(const std::string& name, double& number);
detail::Part part_of(const std::string& name, std::vector<double>& numbers);

/// The name under which no program can track a part: the random numbers of each rank.
inline constexpr const char* kRandomPart = "random";

}  // namespace tandem::inline v0::checkpoint
