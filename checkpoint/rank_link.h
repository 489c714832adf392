#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/state_dict.h>

// Internal: what the ranks of a run tell each other.

namespace tandem::inline v0::checkpoint {

/// This rank's link to the others: a group of its own, so that its calls mix with no others. Without a default group
/// there is one rank, and the calls do nothing. All but rank() and size() are collectives.
class RankLink {
 public:
  RankLink();

  int rank() const noexcept { return group_ ? group_->rank() : 0; }
  int size() const noexcept { return group_ ? group_->size() : 1; }
  bool leads() const noexcept { return rank() == 0; }
  /// "rank 2", as it is called in the job.
  std::string name() const;

  /// The largest of each value on all ranks.
  std::vector<double> largest(const std::vector<double>& values) const;
  /// Gives all ranks the tensors and texts of rank `source`.
  void share(StateDict& state, Metadata& metadata, int source = 0) const;
  /// The states of all ranks, in their order, on rank 0; elsewhere nothing.
  std::vector<StateDict> gather(const StateDict& own) const;
  /// Throws ValueError on all ranks, with the first parameter in which they differ, if they do.
  void compare(const nn::NamedTensors& parameters) const;

 private:
  Tensor sent(const Tensor& tensor) const;  // where the group's backend takes it
  void broadcast(Tensor& tensor, int source) const;

  std::unique_ptr<parallel::ProcessGroup> group_;
  Device device_;
};

}  // namespace tandem::inline v0::checkpoint
