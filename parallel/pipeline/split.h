#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/nn/container.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// A division of the layers of a Sequential into stages, with what each layer costs. to_string() shows it as a table.
struct StageSplit {
  std::vector<std::size_t> layers{};  ///< number of layers of each stage, in order
  std::vector<double> costs{};        ///< of each layer of the model, in `unit`
  std::string unit{};                 ///< "bytes" or "us"

  /// The cost of each stage.
  TANDEM_API std::vector<double> stage_costs() const;
};

/// Divides the layers so that the stage with the most bytes of parameters and buffers has as few as possible. Among
/// equal divisions early stages get more layers, so that an activation stays with the layer before it. Throws
/// ConfigError unless there are 1 to model.size() stages.
TANDEM_API StageSplit split_by_bytes(const nn::Sequential& model, std::size_t stages);
/// As split_by_bytes(), by the time of each layer's forward and backward pass on the micro-batch `x`, where the model
/// is. It takes the shortest of several runs. Parameters, gradients, buffers and the generator's state are as before
/// afterwards. Times differ from run to run: processes that build the same model take rank 0's split.
TANDEM_API StageSplit split_by_time(nn::Sequential& model, const Tensor& x, std::size_t stages);
/// A line for each stage: layers, cost, share.
TANDEM_API std::string to_string(const StageSplit& split);

namespace detail {
/// Divides items into runs so that the largest sum is as small as possible: the number of items of each run.
std::vector<std::size_t> split_evenly(const std::vector<double>& costs, std::size_t parts);
}  // namespace detail

}  // namespace tandem::inline v0::parallel
