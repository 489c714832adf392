#pragma once

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// out = value, converted to `dtype`. Integers up to 2^53 are exact.
struct Fill {
  static constexpr const char* kName = "fill";
  DType dtype;
  Loop loop;
  Operand out;
  double value = 0;
};
void run(OnCpu, Context& context, const Fill& kernel);

/// out[i] = start + i * step over `count` dense elements.
struct Arange {
  static constexpr const char* kName = "arange";
  DType dtype;
  void* out;
  std::int64_t count;
  double start;
  double step;
};
void run(OnCpu, Context& context, const Arange& kernel);

/// out = in, converted from in_dtype to out_dtype as convert() in math.h does, or out += in.
/// No overlap.
struct Copy {
  static constexpr const char* kName = "copy";
  DType in_dtype;
  DType out_dtype;
  Accumulate accumulate = Accumulate::no;
  Loop loop;
  Operand out;
  Operand in;
};
void run(OnCpu, Context& context, const Copy& kernel);

/// Along the middle dimension of a dense [outer, size, inner] input: out[o, i, :] = in[o, index[i], :], for a dense
/// [outer, count, inner] output. Indices are in range. Elements are moved as bytes.
struct IndexSelect {
  static constexpr const char* kName = "index_select";
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count;
  std::int64_t inner_bytes;
};
void run(OnCpu, Context& context, const IndexSelect& kernel);

/// Its gradient: out[o, index[i], :] += in[o, i, :] in the order of i. `out` is dense [outer, size, inner].
struct IndexAdd {
  static constexpr const char* kName = "index_add";
  DType dtype;
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count, inner;
};
void run(OnCpu, Context& context, const IndexAdd& kernel);

/// One element along the middle dimension of a dense [outer, size, inner] `out` for each of [outer, inner]:
/// out[o, index[o, i], i] += in[o, i]. Indices are in range.
struct ScatterAdd {
  static constexpr const char* kName = "scatter_add";
  DType dtype;
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, inner;
};
void run(OnCpu, Context& context, const ScatterAdd& kernel);

}  // namespace tandem::inline v0::kernels
