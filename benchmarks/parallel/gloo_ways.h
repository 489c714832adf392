#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>

#include <tandem/tandem.h>

namespace tandem::parallel {

/// One way to carry out a collective.
struct Way {
  std::string name;
  std::function<void(int root)> step;
  std::vector<double> times = {};  // seconds per call, one value per round
};

/// A collective over the same memory in several ways: those of a process group, named by their function, and Gloo's.
struct Contest {
  std::vector<Way> ours;
  std::vector<Way> gloos;
  std::int64_t results;  // first elements of `out` that this rank gets if rank 0 is the root
};

/// The memory of one size. A call reads `in` and writes `out`, or changes `out` in place. A collective that gives every
/// rank a part, or takes one from it, has the part at the beginning of the memory.
struct Numbers {
  /// `bytes` counts what all parts have together. The size is rounded down to equal parts for `ranks`.
  Numbers(std::size_t bytes, int ranks)
      : part(static_cast<std::int64_t>(bytes / sizeof(float)) / ranks),
        numel(part * ranks),
        in(zeros({numel})),
        out(zeros({numel})) {}

  std::int64_t part;   // elements of one rank
  std::int64_t numel;  // elements of all ranks
  Tensor in;
  Tensor out;
};

/// The collectives that move data. All ranks make them in the same order.
std::vector<Contest> contests(ProcessGroup& group, const std::shared_ptr<gloo::Context>& bare, Numbers& numbers);

/// Barriers.
Contest barriers(ProcessGroup& group, const std::shared_ptr<gloo::Context>& bare);

}  // namespace tandem::parallel
