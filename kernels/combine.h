#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

/// How arrays become one, element by element. On bool, sum and max are "or", product and min "and".
enum class CombineOp : std::uint8_t { sum, avg, min, max, product };

/// out[k][i] = in[0][i] op in[1][i] op ... in this order, for `count` dense elements and every k; an `out` may be one
/// of `in`. 16-bit types are combined in f32 and rounded once, integers wrap around; avg, the sum divided by `ins`, is
/// of floating point alone. min and max keep a NaN. At least one of each; at most kMost on a GPU. The lists are read at
/// the launch.
struct Combine {
  static constexpr const char* kName = "combine";
  static constexpr int kMost = 64;
  CombineOp op;
  DType dtype;
  const void* const* in;
  int ins;
  void* const* out;
  int outs;
  std::int64_t count;
};
void run(OnCpu, Context& context, const Combine& kernel);
void run(OnCuda, Context& context, const Combine& kernel);

}  // namespace tandem::inline v0::kernels
