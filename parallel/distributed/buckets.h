#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>

// Internal: the gradients that are reduced together, and the ones that this rank has.

namespace tandem::inline v0::parallel {

/// A trained parameter, and its place when the buckets were made.
struct BucketMember {
  std::string name;
  Tensor parameter;
  autograd::Leaf* leaf;
  ParameterStore::Place place;
  std::size_t bucket;
  std::uint64_t arrived;  // the last pass that added to the gradient; 0: none
};

/// Gradients that lie side by side in a ParameterStore, gaps included.
struct BucketRange {
  tandem::detail::View gradients;
  std::size_t first = 0;  // its members are [first, last)
  std::size_t last = 0;
};

/// The sizes in bytes at which buckets are full: the first two buckets, and all others.
using BucketLimits = std::pair<std::int64_t, std::int64_t>;
/// Returns `bucket_cap_mb` MiB for all buckets if it is given. Otherwise: ranks that share memory get 25 MiB, since
/// there is no wire to keep busy and one reduction costs less than two. Over Gloo's network a collective of some
/// hundredths of a second measures the size, so that the fixed cost of a bucket is 2 % of its transfer time, within 1
/// to 25 MiB. On other backends, where the size of buckets may change the result's bits, PyTorch's sizes apply: first 1
/// MiB, so that reduction begins early, then 25 MiB.
BucketLimits bucket_limits(ProcessGroup& group, std::optional<double> bucket_cap_mb);

/// The gradients of a wrapper's parameters on this rank: in which buckets they lie, which backward pass was the last to
/// add to each, and which pass the ranks reduced last. A gradient is new from the pass that adds to it until a pass has
/// been reduced. Knows nothing of how passes run: a ReducerPass and a JoinState both work on it, under the Reducer's
/// lock while a pass runs.
///
/// Members and buckets are in the order in which gradients are expected: that of memory, which begins with the last
/// parameter.
class Buckets {
 public:
  /// Cuts the gradients of `trained`, which it packs into ParameterStores, into ranges that end with the parameter by
  /// which they are full. The Leaf of a member has its index in `observed_as`.
  Buckets(const nn::NamedTensors& trained, const BucketLimits& limits);

  const std::vector<BucketMember>& members() const noexcept { return members_; }
  const std::vector<BucketRange>& ranges() const noexcept { return ranges_; }
  /// "bucket 0 of 2, 'fc3.bias' to 'fc2.weight'".
  std::string name(std::size_t bucket) const;
  /// A member's gradient with the gap after it, whether the gradient counts or not.
  tandem::detail::View memory_of(std::size_t member) const;
  /// The parameters' values that lie like a bucket's gradients.
  tandem::detail::View values_of(std::size_t bucket) const;
  /// "bucket 0 of gradients: f32 262144, from 'fc3.bias' to 'fc1.weight'", and one line for each member. Ranks compare
  /// these lines, since a reduction sums whatever lies at one place.
  std::vector<std::string> describe() const;

  void begin_pass() noexcept { ++pass_; }
  bool is_first_pass() const noexcept { return pass_ == kBeforeWrapping + 1; }
  void note_arrival(std::size_t member) { members_[member].arrived = pass_; }
  void note_reduced() noexcept { reduced_ = pass_; }

  /// Whether a member's gradient was added to since the last reduced pass.
  bool has_new(std::size_t member) const;
  /// The source of new gradients: a backward pass through the module before it was wrapped, or one in no_sync().
  enum class Origin { before_wrapping, local_pass };
  bool has_new_from(Origin origin) const;
  /// A hash of which members have a gradient, new or reduced; 0 if none has.
  std::int64_t set_of_gradients() const;
  /// Grows when a parameter is written.
  std::uint64_t parameter_versions() const;

  void scale(std::size_t bucket, double factor) const;
  void scale_all(double factor) const;

 private:
  static constexpr std::uint64_t kBeforeWrapping = 1;  // counts as a pass

  std::vector<BucketMember> members_;
  std::vector<BucketRange> ranges_;
  std::uint64_t pass_ = kBeforeWrapping;
  std::uint64_t reduced_ = 0;
};

}  // namespace tandem::inline v0::parallel
