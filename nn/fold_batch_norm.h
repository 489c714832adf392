#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/nn/module_ref.h>

namespace tandem::inline v0::nn {

/// Folds the batch norms of `model` into the layers before them, for faster inference: weight and bias of the layer
/// take in the norm's, and the norm costs nothing from then on. Results stay the same up to rounding.
///
///     model.eval();
///     nn::fold_batch_norm(model);
///
/// A norm is folded into a Conv1d, Conv2d or Linear that comes directly before it, as neighbours in a Sequential, or as
/// children of one module, in this order, whose names differ only in what they say of the kind: "conv1" and "bn1",
/// "conv" and "norm", "fc2" and "bn2". Such names promise that the norm's only input is the layer's output. Skipped are
/// norms without running statistics, layers with tied weights, pairs without any bias, and what is folded already.
///
/// The state dict keeps its names and stands for the folded model. Loading a state dict, training the norms, and moving
/// the model to another device or dtype all give correct results afterwards, with norms that compute again.
///
/// Returns the folded pairs: "layer1.0.conv1 + layer1.0.bn1". Throws ConfigError if the layer or the norm of a pair is
/// in training mode.
TANDEM_API std::vector<std::string> fold_batch_norm(const ModuleRef& model);

}  // namespace tandem::inline v0::nn
