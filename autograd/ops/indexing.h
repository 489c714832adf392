#pragma once

#include <tandem/autograd/ops/common.h>

// Internal: what several families do with indices.

namespace tandem::inline v0::autograd {

/// `index` is dense i64; throws ValueError naming the first that is not in [0, end), and its position. On a GPU the
/// kernels that use it do, later: they are given `op` for it.
void check_in_range(const char* op, const View& index, std::int64_t end);

/// out[o, index[i], :] += in[o, i, :] in the order of i, over a dense `out` seen as [outer, size, inner]; index is
/// dense i64 and in range; index `skip` adds nothing. 16-bit sums are rounded once.
void index_add_to(const View& out, const AroundDim& around, const View& index, const View& in, const char* op,
                  std::int64_t skip = -1);

/// out[..., index[p], ...] += source[p] along `dim`, over the positions p of `index` (i64, in range), which `source`
/// covers. `out` overlaps nothing. 16-bit sums are rounded once.
void scatter_add_to(const View& out, int dim, const View& index, const View& source, const char* op = "scatter_add");

}  // namespace tandem::inline v0::autograd
