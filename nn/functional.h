#pragma once

#include <tandem/autograd/ops.h>

namespace tandem::inline v0::nn {

using tandem::cross_entropy;
using tandem::dropout;
using tandem::linear;
using tandem::mse_loss;
using tandem::relu;
using tandem::Reduction;

}  // namespace tandem::inline v0::nn
