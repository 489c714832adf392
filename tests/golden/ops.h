#pragma once

#include <stdexcept>
#include <vector>

#include "golden_file.h"

namespace tandem::golden {

/// The result of tandem's op for a case on these inputs. Throws std::out_of_range for an unknown op.
Tensor run_op(const Case& c, const std::vector<Tensor>& inputs);

/// The positions of the maxima or minima, for a case with `indices`.
Tensor run_positions(const Case& c, const Tensor& input);

/// All errors in tandem's output and gradients of a case in a dtype, one per line: "'name', output: ...".
std::vector<std::string> problems_of(const Case& c, DType dtype);

}  // namespace tandem::golden
