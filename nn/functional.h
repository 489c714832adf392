#pragma once

#include <tandem/autograd/ops.h>

namespace tandem::inline v0::nn {

using tandem::batch_norm;
using tandem::cross_entropy;
using tandem::dropout;
using tandem::embedding;
using tandem::layer_norm;
using tandem::linear;
using tandem::mse_loss;
using tandem::Reduction;
using tandem::relu;

}  // namespace tandem::inline v0::nn
