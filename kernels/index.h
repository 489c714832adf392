#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

// On a CPU, the caller has checked the indices before a kernel runs. On a GPU the kernels check them: they report an
// index out of range under the name `op` (a string literal) and leave its elements out.

namespace tandem::inline v0::kernels {

/// Selects along the middle dimension of a dense [outer, size, inner] input: out[o, i, :] = in[o, index[i], :]. The
/// output is dense [outer, count, inner]. Elements are moved as bytes; an index out of range gives zeros.
struct IndexSelect {
  static constexpr const char* kName = "index_select";
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count;
  std::int64_t inner_bytes;
  const char* op = kName;
};
void run(OnCpu, Context& context, const IndexSelect& kernel);
void run(OnCuda, Context& context, const IndexSelect& kernel);

/// The gradient of IndexSelect: out[o, index[i], :] += in[o, i, :] in the order of i. Indices equal to `skip` are left
/// out. `out` is dense [outer, size, inner].
struct IndexAdd {
  static constexpr const char* kName = "index_add";
  DType dtype;
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count, inner;
  std::int64_t skip = -1;
  const char* op = kName;
};
void run(OnCpu, Context& context, const IndexAdd& kernel);
void run(OnCuda, Context& context, const IndexAdd& kernel);

}  // namespace tandem::inline v0::kernels
