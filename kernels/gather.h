#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

// index.h says where indices are checked.

namespace tandem::inline v0::kernels {

/// out[p] = in[q] for every position p of `loop`, where q is p with index[p] in place of its coordinate along one
/// dimension. `in` has stride 0 along that dimension in the loop; its real stride there is `dim_stride` (elements),
/// over `dim_size` elements.
struct Gather {
  static constexpr const char* kName = "gather";
  std::int64_t item_size;
  std::int64_t dim_stride;
  std::int64_t dim_size;
  const char* op = kName;
  Loop loop;
  Operand out;
  Operand index;  // i64
  Operand in;
};
void run(OnCpu, Context& context, const Gather& kernel);
void run(OnCuda, Context& context, const Gather& kernel);

/// The reverse of Gather: out[q] += in[p], where q is p with index[p] in place of its coordinate along one dimension.
/// That dimension is the loop's last and is walked in order, so sums of repeated indices don't depend on timing.
struct ScatterAdd {
  static constexpr const char* kName = "scatter_add";
  DType dtype;
  std::int64_t dim_stride;
  std::int64_t dim_size;
  const char* op = kName;
  Loop loop;
  Operand out;
  Operand index;  // i64
  Operand in;
};
void run(OnCpu, Context& context, const ScatterAdd& kernel);
void run(OnCuda, Context& context, const ScatterAdd& kernel);

}  // namespace tandem::inline v0::kernels
