#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// The parameters and gradients of one dtype and device in two flat allocations, in reverse registration order (the
/// order in which a backward pass finishes them). Each parameter is a segment that begins at a multiple of 256 bytes
/// and has its own version; the gap after a segment is zero in both allocations. Optimisers, gradient norms and
/// communication buckets work on ranges of the store. The store lives as long as one of its parameters.
class TANDEM_API ParameterStore {
 public:
  static constexpr std::int64_t kAlignment = 256;  // bytes

  /// The elements of a parameter in the flat arrays, with their padded size.
  struct Segment {
    std::int64_t offset;  // offset of the first element
    std::int64_t numel;   // number of elements, without the gap
    std::int64_t padded;  // number of elements, including the gap
  };
  /// The store that holds a parameter, and its place there.
  struct Place {
    std::shared_ptr<ParameterStore> store;  // null if the parameter is in no store
    std::size_t segment = 0;                // index into segments()
    bool operator==(const Place&) const = default;
  };

  /// Packs the parameters that are not in a store yet, one store per dtype and device. The parameters must be leaves
  /// that require a gradient, in registration order. Parameters keep their identity, values and gradients, but their
  /// elements move: handles made earlier by detach() keep referring to the old memory.
  static void ensure(const std::vector<Tensor>& parameters);
  /// The place of a parameter; the store is null if the parameter is in none.
  static Place find(const Tensor& parameter);

  /// A segment of `flat`, which is laid out like a store's values(); the segment has its own version.
  static detail::View segment_view(const detail::View& flat, const Segment& segment, const Shape& sizes);

  /// The dtype of all parameters in the store.
  DType dtype() const noexcept { return values_.dtype; }
  /// The device of all parameters in the store.
  Device device() const noexcept { return values_.device(); }
  /// The segments in memory order.
  const std::vector<Segment>& segments() const noexcept { return segments_; }
  /// The values of all parameters, including gaps, as one dense view.
  const detail::View& values() const noexcept { return values_; }
  /// The gradients of all parameters, laid out like values().
  const detail::View& gradients() const noexcept { return gradients_; }

 private:
  static void pack(const std::vector<Tensor>& parameters);

  std::vector<Segment> segments_;
  detail::View values_;
  detail::View gradients_;
};

/// A dense range of memory that holds parameters [first, last) of a list, or this rank's parts of them, together with
/// the range of their gradients.
struct ParameterRun {
  std::size_t first;   // index of the first parameter
  std::size_t last;    // one past the last parameter
  std::int64_t numel;  // number of elements, including gaps
  DType dtype;         // dtype of all parameters in the run
  Device device;       // device of all parameters in the run
  void* values;        // the first element
  void* gradients;     // the gradient of the first element
};

namespace detail {
/// The run of one parameter; numel is -1 if it has no gradient.
TANDEM_API ParameterRun single_run(const Tensor& parameter, std::size_t index);
/// Lets `run` include `next`, if that directly follows in memory, or if one of them is empty. Returns whether it does.
TANDEM_API bool extend(ParameterRun& run, const ParameterRun& next);
}  // namespace detail

/// The parameters in memory order: stores in the order of their first parameter, segments ascending.
TANDEM_API std::vector<Tensor> sorted_by_place(const std::vector<Tensor>& parameters);

/// Cuts a list of parameters, sorted by place, into the longest possible runs of parameters that have a gradient now;
/// parameters without a gradient are left out. `same(i, j)` may forbid neighbours i and j to share a run.
template <class Same>
std::vector<ParameterRun> gradient_runs(const std::vector<Tensor>& sorted, Same&& same) {
  std::vector<ParameterRun> runs;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const ParameterRun run = detail::single_run(sorted[i], i);
    if (run.numel < 0) {
      continue;
    }
    if (runs.empty() || runs.back().last != i || !same(i - 1, i) || !detail::extend(runs.back(), run)) {
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace tandem::inline v0
