#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tandem/tensor/tensor.h>

// The op matrix, described in matrix.py.

namespace tandem::golden {

/// The dtype that a case covers: "*" for all floating-point types, "pair" if the inputs have two dtypes.
std::string subject_of(const nlohmann::json& entry);

/// All errors in tandem's result and gradients of a case, one per line; `floating` replaces "*".
std::vector<std::string> matrix_problems(const nlohmann::json& entry, DType floating);

}  // namespace tandem::golden
