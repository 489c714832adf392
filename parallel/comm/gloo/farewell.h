#pragma once

#include <cstddef>
#include <memory>

#include <tandem/core/error.h>

// Internal: what a rank tells the others before it closes its connections.

namespace tandem::inline v0::parallel {

/// A CommError as bytes of fixed size. What does not fit of its text is cut off.
struct Farewell {
  Farewell() = default;
  explicit Farewell(const CommError& error);
  CommError error() const;

  CommFault fault = CommFault::aborted;
  int rank = -1;
  std::int64_t generation = 0;
  std::int64_t sequence = -1;
  std::int64_t bytes = -1;
  double elapsed = 0;
  char op[32] = {};
  char text[4000] = {};
};

}  // namespace tandem::inline v0::parallel
