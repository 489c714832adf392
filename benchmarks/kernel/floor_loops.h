#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The roofline's two limits, as loops that are compiled for each instruction set like the kernels.

namespace bench::kernel {

/// Memory that a pass goes through once, from front to back.
struct Stream {
  enum Access : std::uint8_t { read, write, update };
  void* data;
  std::int64_t bytes;
  Access access;
};
/// Streams that are walked side by side.
using Pass = std::vector<Stream>;

struct FloorLoops {
  /// Walks `count` streams side by side in `steps` steps. Of each stream a step takes `widths[i]` bytes, a multiple of
  /// 64. Reading loads, writing stores zeros without reading, and updating stores what was loaded. `count` is not 0.
  void (*walk)(const Stream* streams, const std::int64_t* widths, int count, std::int64_t steps);
  /// Multiply-adds on registers alone. Returns the number of floating-point operations of a round.
  double (*multiply_add_f32)(std::int64_t rounds);
  double (*multiply_add_f64)(std::int64_t rounds);
};

/// The loops for the instruction set in use.
const FloorLoops& floor_loops();
/// Like FloorLoops::multiply_add_f32, for numbers of the type "f32", "f64", "bf16" or "f16" in the fastest way that the
/// processor has.
double multiply_add(const std::string& dtype, std::int64_t rounds);

}  // namespace bench::kernel
