#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter_store.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

// Internal: which gradients are reduced together.

namespace tandem::inline v0::parallel {

/// A parameter that is trained, and where it was when the buckets were made.
struct BucketMember {
  std::string name;
  Tensor parameter;
  autograd::Leaf* leaf;
  ParameterStore::Place place;
  std::size_t bucket = 0;
};

/// Gradients that lie side by side in a ParameterStore, gaps included.
struct BucketRange {
  tandem::detail::View gradients;
  std::size_t first = 0;  // its members are [first, last)
  std::size_t last = 0;
};

/// In the order in which gradients are expected: that of memory, which begins with the last parameter.
struct Buckets {
  std::vector<BucketMember> members;
  std::vector<BucketRange> ranges;
};

/// After how many bytes a bucket is full.
struct BucketLimits {
  std::int64_t first = 0;
  std::int64_t others = 0;
};
/// `bucket_cap_mb` MiB for all, if that is given. Else 25 MiB where ranks share memory: there is no wire to keep busy,
/// and one reduction costs less than two. Over Gloo's network what is measured, a collective of some hundredths of a
/// second: so many bytes that what each bucket costs beside them is 2 %, from 1 to 25 MiB. Else, since there the size
/// of buckets may matter for the result's bits, PyTorch's 1 MiB first, so that reducing begins early, then 25.
BucketLimits bucket_limits(ProcessGroup& group, std::optional<double> bucket_cap_mb);

/// Cuts the gradients of `trained`, which it packs into ParameterStores, into ranges that end with the parameter by
/// which they are full. The Leaf of a member has its index in `observed_as`.
Buckets make_buckets(const nn::NamedTensors& trained, const BucketLimits& limits);

/// "bucket 0 of gradients: f32 262144, from 'fc3.bias' to 'fc1.weight'", and a line for each of its members: for
/// comparing ranks, whose sums are those of what lies at the same place.
std::vector<std::string> describe(const Buckets& buckets);

}  // namespace tandem::inline v0::parallel
