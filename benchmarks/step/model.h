#pragma once

#include <memory>
#include <vector>

#include <tandem/nn/container.h>
#include <tandem/optim/optimizer.h>

#include "step/problem.h"

namespace bench {

/// The model of a Problem with the Problem's weights, on the weights' device.
tandem::nn::Sequential make_model(const Problem& problem);

/// The Spec's optimiser for these parameters.
std::unique_ptr<tandem::optim::Optimizer> make_optimizer(const Spec& spec, std::vector<tandem::Tensor> parameters);

/// The loss, a scalar.
tandem::Tensor loss_of(Loss loss, const tandem::Tensor& out, const tandem::Tensor& y);
/// This overload takes a model of make_model(), which may have a loss of its own.
tandem::Tensor loss_of(const Spec& spec, const tandem::nn::Sequential& model, const tandem::Tensor& x,
                       const tandem::Tensor& y);

}  // namespace bench
