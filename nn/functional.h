#pragma once

#include <tandem/autograd/ops.h>

namespace tandem::inline v0::nn {

using tandem::binary_cross_entropy;
using tandem::binary_cross_entropy_with_logits;
using tandem::cross_entropy;
using tandem::dropout;
using tandem::huber_loss;
using tandem::l1_loss;
using tandem::linear;
using tandem::mse_loss;
using tandem::nll_loss;
using tandem::Reduction;
using tandem::relu;
using tandem::smooth_l1_loss;

}  // namespace tandem::inline v0::nn
