#pragma once

#include <stdexcept>
#include <vector>

#include "golden_file.h"

namespace tandem::golden {

/// What tandem makes of a case's op on these inputs. Throws std::out_of_range for an op it doesn't know.
Tensor run_op(const Case& c, const std::vector<Tensor>& inputs);

/// Positions of the maxima or minima, where the case has `indices`.
Tensor run_positions(const Case& c, const Tensor& input);

/// All that is wrong with tandem's output and gradients of a case in a dtype, a line each: "'name', output: ...".
std::vector<std::string> problems_of(const Case& c, DType dtype);

}  // namespace tandem::golden
