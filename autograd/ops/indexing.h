#pragma once

#include <tandem/autograd/ops/common.h>

// Internal: index operations that several families share.

namespace tandem::inline v0::autograd {

/// Requires a dense i64 `index`. Throws ValueError naming the first element outside [0, end) and its position. On a GPU
/// the kernels that use the index check it later; they receive `op` for the message.
void check_in_range(const char* op, const View& index, std::int64_t end);

/// out[o, index[i], :] += in[o, i, :] in the order of i, for a dense `out` seen as [outer, size, inner]. `index` is
/// dense i64 and in range; index `skip` adds nothing. 16-bit sums are rounded once.
void index_add_to(const View& out, const AroundDim& around, const View& index, const View& in, const char* op,
                  std::int64_t skip = -1);

/// out[..., index[p], ...] += source[p] along `dim`, for every position p of `index` (i64, in range), which covers a
/// part of `source` or all of it. `out` must not overlap the other views. 16-bit sums are rounded once.
void scatter_add_to(const View& out, int dim, const View& index, const View& source, const char* op = "scatter_add");

}  // namespace tandem::inline v0::autograd
