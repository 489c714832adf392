#pragma once

#include <cstdint>
#include <string>

#include <tandem/core/export.h>
#include <tandem/core/shape.h>

// A value that an op found and cannot use. A CPU throws at once; a kernel of a GPU leaves a note. Both say
// the same.

namespace tandem::inline v0::core {

/// What is wrong with a value, and where it is.
struct BadValue {
  /// What it was to be.
  enum class Kind : std::uint32_t {
    index,       // value outside [0, end)
    target,      // a class index outside [0, end) that is not `ignored`
    probability  // number outside [0, 1]
  };
  Kind kind = Kind::index;            // what it was to be
  const char* op = nullptr;           // a literal
  std::int64_t position = 0;          // of the element, counted row by row
  std::int64_t value = 0;             // an index or target
  double number = 0;                  // a probability
  std::int64_t end = 0;               // of the indices that there are
  std::int64_t ignored = 0;           // the target that stands for none
  int ndim = 1;                       // of what the element is in, for a target: its sizes are the first ones
  std::int64_t sizes[kMaxDims] = {};  // the first ndim count
};

/// "index 5 at position 2 is outside [0, 5)": what is wrong, without the op.
TANDEM_API std::string describe(const BadValue& bad);

}  // namespace tandem::inline v0::core
