#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/collective.h>

namespace tandem::inline v0::parallel {

/// The name of a planned collective: "DistributedDataParallel 0's bucket 1 of 3, 'fc1.bias' to 'fc1.weight'".
struct PlanName {
  std::string purpose = {};  // continues the call: "all_reduce f32 [4] sum (#7), <purpose>"
  /// Tells the user in a sentence what to do about ranks that do not all make this call. Empty: nothing in particular.
  std::string advice = {};
};

/// The names of one group on one rank. Ranks have the numbers by which the launcher, the log files and the user know
/// them: those of the whole job. A planned call is told by its purpose. All ranks make the same plans, so each rank can
/// name the plans of the others. Thread-safe.
class TANDEM_API GroupNames {
 public:
  /// The group of all ranks.
  GroupNames() = default;
  /// A group of some ranks: ranks[k] is the number in the job of its rank k.
  explicit GroupNames(std::vector<int> ranks) : ranks_(std::move(ranks)) {}

  /// The number in the job of a rank of this group; negative numbers, which stand for no rank, stay as they are.
  int rank(int of_group) const;
  /// The numbers in the job of some ranks of this group.
  std::vector<int> ranks(std::span<const int> of_group) const;
  /// Returns these numbers as text: "rank 1", "ranks 0, 2".
  std::string list(std::span<const int> of_group) const;
  /// "ranks 1, 3", or empty for the group of all ranks.
  std::string members() const;

  /// The plan with this number (Collective::tag) has that name.
  void note_plan(int number, PlanName name);
  /// to_string(call), with the plan's purpose.
  std::string call(const Collective& call) const;
  /// All ranks' calls side by side: "rank 0: ...; rank 1: ...". Ranks with equal calls are listed together.
  std::string calls(std::span<const Collective> calls) const;
  /// The advice for all planned calls among these, each once.
  std::string advice(std::span<const Collective> calls) const;

 private:
  const PlanName* plan_of(const Collective& call) const;

  std::vector<int> ranks_;  // empty: the group of all ranks
  mutable std::mutex mutex_;
  std::map<int, PlanName> plans_;
};

}  // namespace tandem::inline v0::parallel
