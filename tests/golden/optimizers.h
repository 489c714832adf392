#pragma once

#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include <tandem/optim/optimizer.h>

namespace tandem::golden {

/// The optimiser described by a case: {"type", its options, optionally "groups"}. Throws std::out_of_range for an
/// unknown type.
std::unique_ptr<optim::Optimizer> make_optimizer(const nlohmann::json& spec, const std::vector<Tensor>& parameters);

}  // namespace tandem::golden
