#pragma once

#include <cstdint>
#include <string>

#include <tandem/core/export.h>
#include <tandem/core/shape.h>

// A value that an op found and cannot use. An op on a CPU throws at once; a GPU kernel leaves a note that is thrown
// later. Both report the same text.

namespace tandem::inline v0::core {

/// Describes an unusable value and its position.
struct BadValue {
  /// The kind of value that was expected.
  enum class Kind : std::uint32_t {
    index,       // index outside [0, end)
    target,      // class index outside [0, end) that differs from `ignored`
    probability  // number outside [0, 1]
  };
  Kind kind = Kind::index;            // kind of value that was expected
  const char* op = nullptr;           // name of the op, a string literal
  std::int64_t position = 0;          // position of the element, counted row by row
  std::int64_t value = 0;             // the offending index or target
  double number = 0;                  // the offending probability
  std::int64_t end = 0;               // number of valid indices: they are [0, end)
  std::int64_t ignored = 0;           // target value that means "no class"
  int ndim = 1;                       // for a target: dimensions of its tensor
  std::int64_t sizes[kMaxDims] = {};  // only the first `ndim` entries count
};

/// Describes the fault without naming the op: "index 5 at position 2 is outside [0, 5)".
TANDEM_API std::string describe(const BadValue& bad);
/// The code at the end of a message about it, " [TDM-E306]".
TANDEM_API const char* code_of(const BadValue& bad) noexcept;

}  // namespace tandem::inline v0::core
