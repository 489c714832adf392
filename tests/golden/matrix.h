#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tandem/tensor/tensor.h>

// The op matrix, as matrix.py describes it.

namespace tandem::golden {

/// Which dtype a case is about: "*" for all floating point types, "pair" where the inputs have two.
std::string subject_of(const nlohmann::json& entry);

/// All that is wrong with tandem's result and gradients of a case, a line each; `floating` takes the place of "*".
std::vector<std::string> matrix_problems(const nlohmann::json& entry, DType floating);

}  // namespace tandem::golden
