#include <tandem/nn/fold_batch_norm.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/module_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

namespace detail {

namespace {

const Tensor* slot_of(const NamedTensors& slots, std::string_view name) {
  const auto found = std::ranges::find_if(slots, [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? nullptr : &found->second;
}

// The tensors that make a BatchNorm what it is.
std::vector<std::pair<const void*, std::uint32_t>> versions_of(const ModuleState& norm) {
  std::vector<std::pair<const void*, std::uint32_t>> versions;
  for_each_slot(norm, "", [&](const std::string&, const Tensor& slot, bool) {
    if (is_floating_point(slot.dtype())) {
      versions.emplace_back(slot.raw().storage.get(), slot.raw().storage->version());
    }
  });
  return versions;
}

}  // namespace

bool is_folded(const ModuleState& norm) {
  return !norm.batch_norm->folded.empty() && norm.batch_norm->folded == versions_of(norm);
}

void set_folded(ModuleState& norm) { norm.batch_norm->folded = versions_of(norm); }

const Tensor& folded_bias(const ModuleState& layer, const Tensor& own) {
  const std::shared_ptr<ModuleState> norm = layer.product->norm.lock();
  if (norm == nullptr || norm->training.get() || !is_folded(*norm)) {
    return own;
  }
  return *slot_of(norm->parameters, "bias");
}

}  // namespace detail

using detail::ModuleState;

namespace {

// "conv1" gives "1", "conv_in" and "bn_in" give "in": the name without what says the kind. Other names have none.
std::string_view part_of_name(std::string_view name, std::initializer_list<std::string_view> kinds) {
  for (const std::string_view kind : kinds) {
    if (name.starts_with(kind)) {
      name.remove_prefix(kind.size());
      return name.starts_with('_') ? name.substr(1) : name;
    }
  }
  return "?";
}

bool are_a_pair(const ModuleState& parent, const std::string& layer, const std::string& norm) {
  const std::string_view number = part_of_name(norm, {"bn", "norm", "batch_norm", "batchnorm"});
  return parent.type == "Sequential" ||
         (number != "?" && number == part_of_name(layer, {"conv", "fc", "linear", "lin"}));
}

bool is_tied(const Tensor& slot) { return slot.defined() && slot.unresolved()->registrations > 1; }

// Returns whether the pair could be folded.
bool fold(ModuleState& layer, const std::shared_ptr<ModuleState>& norm) {
  const auto slot_of = [](const NamedTensors& slots, std::string_view name) {
    const Tensor* slot = detail::slot_of(slots, name);
    return slot == nullptr ? Tensor() : *slot;
  };
  const Tensor weight = slot_of(layer.parameters, "weight");
  const Tensor bias = slot_of(layer.parameters, "bias");
  const Tensor scale = slot_of(norm->parameters, "weight");
  const Tensor shift = slot_of(norm->parameters, "bias");
  const Tensor mean = slot_of(norm->buffers, "running_mean");
  const Tensor variance = slot_of(norm->buffers, "running_var");
  if (!mean.defined() || (!bias.defined() && !shift.defined()) || weight.size(0) != mean.numel() ||
      detail::is_folded(*norm) || std::ranges::any_of(std::array{weight, bias, scale, shift}, is_tied)) {
    return false;
  }
  for (const ModuleState* module : {&layer, norm.get()}) {
    check<ConfigError>(!module->training.get(),
                       "fold_batch_norm: {} '{}' is in training mode, in which batch norms use each batch's own "
                       "statistics; call model.eval() first",
                       module->type, module->path);
  }
  const auto exact = [](const Tensor& tensor, double otherwise) {
    return tensor.defined() ? tensor.to(DType::f64) : full({}, otherwise, {.dtype = DType::f64});
  };
  const double eps = norm->batch_norm->eps;
  const Tensor factor = exact(scale, 1) / sqrt(exact(variance, 1) + eps);
  const Tensor rest = (exact(bias, 0).to(mean.device()) - exact(mean, 0)) * factor + exact(shift, 0).to(mean.device());
  Shape by_output{weight.size(0)};
  for (int i = 1; i < weight.dim(); ++i) {
    by_output.push_back(1);
  }
  // The norm becomes x + shift, or x where the layer has a bias: so it also computes what a saved state means.
  Tensor(weight).copy_(exact(weight, 1) * factor.reshape(by_output));
  Tensor(bias.defined() ? bias : shift).copy_(rest);
  if (bias.defined() && shift.defined()) {
    Tensor(shift).fill_(0);
  }
  if (scale.defined()) {
    Tensor(scale).fill_(1);
  }
  Tensor(mean).fill_(0);
  Tensor(variance).fill_(1 - eps);
  detail::set_folded(*norm);
  if (!bias.defined()) {
    layer.product->norm = norm;
  }
  return true;
}

void fold_children(ModuleState& parent, std::vector<std::string>& folded) {
  for (std::size_t i = 0; i < parent.children.size(); ++i) {
    const auto& [layer_name, layer] = parent.children[i];
    fold_children(*layer, folded);
    if (layer->product == nullptr || i + 1 == parent.children.size()) {
      continue;
    }
    const auto& [norm_name, norm] = parent.children[i + 1];
    if (norm->batch_norm != nullptr && are_a_pair(parent, layer_name, norm_name) && fold(*layer, norm)) {
      folded.push_back(layer->path + " + " + norm->path);
    }
  }
}

}  // namespace

std::vector<std::string> fold_batch_norm(const ModuleRef& model) {
  const NoGradGuard no_grad;
  std::vector<std::string> folded;
  fold_children(detail::state_of(model), folded);
  tandem::detail::note_step_change();
  return folded;
}

}  // namespace tandem::inline v0::nn
