#pragma once

#include <tandem/autograd/ops/common.h>

// Internal: what several families do with indices.

namespace tandem::inline v0::autograd {

/// out[..., index[p], ...] += source[p] along `dim`, over the positions p of `index` (i64, in range), which `source`
/// covers. `out` overlaps nothing. 16-bit sums are rounded once.
void scatter_add_to(const View& out, int dim, const View& index, const View& source);

}  // namespace tandem::inline v0::autograd
