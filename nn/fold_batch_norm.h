#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/nn/module_ref.h>

namespace tandem::inline v0::nn {

/// Folds the batch norms of `model` into the layers before them, for faster inference: weight and bias of the layer
/// take in the norm's, and the norm costs nothing while nothing is recorded (NoGradGuard, or frozen parameters).
///
///     model.eval();
///     nn::fold_batch_norm(model, [&] { return model(images); });
///
/// A BatchNorm1d is folded into a Linear or Conv1d, a BatchNorm2d into a Conv2d, that comes directly before it: as
/// neighbours in a Sequential, or as children of one module, in this order, whose names differ only in what they say of
/// the kind: "conv1" and "bn1", "conv" and "norm", "fc2" and "bn2". Such names do not tell how the module calls its
/// children. So pairs by name need `run`, which returns outputs of the model for some input: if they change by more
/// than rounding, the model gets its tensors back. Skipped are norms without running statistics, layers with tied
/// weights, pairs without any bias, and what is folded already.
///
/// The state dict keeps its names and stands for the folded model. After a state dict is loaded, the norms trained, an
/// optimiser built, or the model moved to another device or dtype, norms compute again, with correct results. Captured
/// steps do not notice a norm's tensor that is written by hand.
///
/// Returns the folded pairs: "layer1.0.conv1 + layer1.0.bn1". Throws ConfigError, and changes nothing, for pairs by
/// name without `run` and for a pair in training mode; ValueError if the outputs change.
TANDEM_API std::vector<std::string> fold_batch_norm(const ModuleRef& model, const std::function<Tensor()>& run = {});

}  // namespace tandem::inline v0::nn
