#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// Parameters and gradients of one dtype and device in two flat allocations, in reverse registration order (the order
/// in which a backward pass finishes them). Each parameter is a segment that begins at a multiple of 256 bytes and has
/// a version of its own; the gap behind it is zero in both. Optimisers, gradient norms and communication buckets are
/// ranges of it. It lives as long as one of its parameters.
class TANDEM_API ParameterStore {
 public:
  static constexpr std::int64_t kAlignment = 256;  // bytes

  /// A parameter's elements in the flat arrays, and the padded size it takes there.
  struct Segment {
    std::int64_t offset;  // of its first element
    std::int64_t numel;   // without the gap
    std::int64_t padded;  // with it
  };
  /// Which store a parameter is in, and where.
  struct Place {
    std::shared_ptr<ParameterStore> store;  // null: not in a store
    std::size_t segment = 0;                // index into segments()
    bool operator==(const Place&) const = default;
  };

  /// Packs the parameters (leaves that require grad, in registration order) that are not in a store yet, one store per
  /// dtype and device. They keep their identity, values and gradients, but their elements move: handles made by
  /// detach() before stay with the old memory.
  static void ensure(const std::vector<Tensor>& parameters);
  /// Where a parameter is; with a null store when it is in none.
  static Place find(const Tensor& parameter);

  /// A segment of `flat`, which is laid out as a store's values(), with a version of its own.
  static detail::View segment_view(const detail::View& flat, const Segment& segment, const Shape& sizes);

  /// Of all its parameters.
  DType dtype() const noexcept { return values_.dtype; }
  /// Of all its parameters.
  Device device() const noexcept { return values_.device(); }
  /// In the order of memory.
  const std::vector<Segment>& segments() const noexcept { return segments_; }
  /// All parameters, gaps included, as one dense view; and their gradients.
  const detail::View& values() const noexcept { return values_; }
  /// The gradients of all parameters, laid out as values().
  const detail::View& gradients() const noexcept { return gradients_; }

 private:
  static void pack(const std::vector<Tensor>& parameters);

  std::vector<Segment> segments_;
  detail::View values_;
  detail::View gradients_;
};

/// A dense stretch of memory that holds parameters [first, last) of a list, and their gradients.
struct ParameterRun {
  std::size_t first;   // index of the first parameter
  std::size_t last;    // one past the last
  std::int64_t numel;  // gaps included
  DType dtype;         // of all members
  Device device;       // of all members
  void* values;        // first element
  void* gradients;     // of that element
};

/// Cuts a list of parameters, sorted by place, into the longest runs whose members all have a gradient now;
/// those without are left out. `same(i, j)` may forbid that neighbours i and j share a run.
template <class Same>
std::vector<ParameterRun> gradient_runs(const std::vector<Tensor>& sorted, Same&& same);

namespace detail {
/// The run of one parameter; numel -1 when it has no gradient.
TANDEM_API ParameterRun single_run(const Tensor& parameter, std::size_t index);
/// Whether `next` follows `run` in memory, so that both are one run.
TANDEM_API bool extends(const ParameterRun& run, const ParameterRun& next);
}  // namespace detail

/// The parameters in the order of their memory: stores as first met, segments ascending.
TANDEM_API std::vector<Tensor> sorted_by_place(const std::vector<Tensor>& parameters);

template <class Same>
std::vector<ParameterRun> gradient_runs(const std::vector<Tensor>& sorted, Same&& same) {
  std::vector<ParameterRun> runs;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const ParameterRun run = detail::single_run(sorted[i], i);
    if (run.numel < 0) {
      continue;
    }
    if (!runs.empty() && runs.back().last == i && detail::extends(runs.back(), run) && same(i - 1, i)) {
      runs.back().last = i + 1;
      runs.back().numel += run.numel;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace tandem::inline v0
