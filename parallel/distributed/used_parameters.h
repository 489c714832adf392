#pragma once

#include <optional>
#include <vector>

#include <tandem/parallel/comm/work.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/group_link.h>

// Internal: find_unused_parameters, the gradients of parameters that a pass does not reach on some ranks or on all.

namespace tandem::inline v0::parallel {

/// A copy of an old gradient. A bucket is reduced as a whole, so a gradient that a pass does not add to is overwritten
/// with the rest of its bucket; if no rank adds to it, the copy restores it bit by bit.
struct KeptGradient {
  std::size_t member;
  tandem::detail::View gradient;
  std::uint32_t version;
};

/// An agreement of the ranks at the end of a pass: for each parameter, whether some rank has a new gradient of it. A
/// parameter that some rank used gets the mean on all ranks. A parameter that no rank used keeps what all ranks have,
/// bit by bit: no gradient, or an old one. The mean of equal gradients, or a comm hook's result, need not be the same
/// bits.
class UsedParameters {
 public:
  /// A collective. Without `may_be_unused` every parameter is used in every pass, and agree() does nothing.
  UsedParameters(const GroupLink& link, Buckets& buckets, bool may_be_unused);

  bool may_be_unused() const noexcept { return record_.defined(); }
  KeptGradient keep(std::size_t member) const;
  /// A collective, after all buckets have been reduced. `lacks`: this rank was without some gradient in this pass, or
  /// in a local one before. `follows`: this rank's input has ended, and it repeats the actions of the others.
  void agree(const std::vector<KeptGradient>& kept, bool lacks, bool follows);
  /// Whether some rank had a new gradient in the latest pass.
  bool is_given(std::size_t member) const;

 private:
  const GroupLink& link_;
  Buckets& buckets_;
  Tensor record_;  // i32: per parameter the maximum over ranks and the negated minimum; last, whether a rank lacks one
  std::optional<PlannedCollective> plan_;  // reduces the record; empty if the group has one rank
};

}  // namespace tandem::inline v0::parallel
