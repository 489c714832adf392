#pragma once

#include <tandem/autograd/ops.h>
#include <tandem/autograd/spatial.h>

// The functions of torch.nn.functional, under the names that users of PyTorch look for.

namespace tandem::inline v0::nn {

using tandem::adaptive_avg_pool2d;
using tandem::adaptive_max_pool2d;
using tandem::avg_pool1d;
using tandem::avg_pool2d;
using tandem::batch_norm;
using tandem::BCELossOptions;
using tandem::BCEWithLogitsLossOptions;
using tandem::binary_cross_entropy;
using tandem::binary_cross_entropy_with_logits;
using tandem::conv1d;
using tandem::conv2d;
using tandem::conv_transpose1d;
using tandem::conv_transpose2d;
using tandem::cross_entropy;
using tandem::CrossEntropyLossOptions;
using tandem::dropout;
using tandem::dropout2d;
using tandem::elu;
using tandem::embedding;
using tandem::gelu;
using tandem::GELUApproximation;
using tandem::group_norm;
using tandem::huber_loss;
using tandem::instance_norm;
using tandem::interpolate;
using tandem::InterpolateMode;
using tandem::l1_loss;
using tandem::layer_norm;
using tandem::leaky_relu;
using tandem::linear;
using tandem::log_softmax;
using tandem::max_pool1d;
using tandem::max_pool2d;
using tandem::max_pool2d_with_indices;
using tandem::mse_loss;
using tandem::nll_loss;
using tandem::NLLLossOptions;
using tandem::pad;
using tandem::PadMode;
using tandem::Reduction;
using tandem::relu;
using tandem::rms_norm;
using tandem::sigmoid;
using tandem::silu;
using tandem::smooth_l1_loss;
using tandem::softmax;
using tandem::softplus;
using tandem::tanh;
using tandem::unfold;

}  // namespace tandem::inline v0::nn
