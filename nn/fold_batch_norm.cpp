#include <tandem/nn/fold_batch_norm.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <fmt/ranges.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/nn/container.h>
#include <tandem/nn/module_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

namespace detail {

namespace {

// The tensor of that name; undefined if there is none.
const Tensor& slot_of(const NamedTensors& slots, std::string_view name) {
  static const Tensor kNone;
  const auto found = std::ranges::find_if(slots, [&](const auto& slot) { return slot.first == name; });
  return found == slots.end() ? kNone : found->second;
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
  const auto records = [](const auto& slot) { return slot.second.requires_grad(); };
  return !norm.batch_norm->folded.empty() && norm.batch_norm->folded == versions_of(norm) &&
         !(core::thread_state().grad_enabled && std::ranges::any_of(norm.parameters, records));
}

const Tensor& folded_bias(const ModuleState& layer, const Tensor& own) {
  const std::shared_ptr<ModuleState> norm = layer.product->norm.lock();
  if (norm == nullptr || norm->training.get() || !is_folded(*norm)) {
    return own;
  }
  return slot_of(norm->parameters, "bias");
}

}  // namespace detail

using detail::ModuleState;
using detail::slot_of;

namespace {

// "conv1" gives "1", "conv_in" and "bn_in" give "in": the name without what says the kind. Other names give nothing.
std::optional<std::string_view> without_kind(std::string_view name, std::initializer_list<std::string_view> kinds) {
  for (const std::string_view kind : kinds) {
    if (name.starts_with(kind)) {
      name.remove_prefix(kind.size());
      return name.starts_with('_') ? name.substr(1) : name;
    }
  }
  return std::nullopt;
}

bool are_named_alike(std::string_view layer, std::string_view norm) {
  const auto number = without_kind(norm, {"batch_norm", "batchnorm", "bn", "norm"});
  return number && number == without_kind(layer, {"conv", "fc", "linear", "lin"});
}

// A layer and the norm behind it.
struct Pair {
  ModuleState* layer;
  std::shared_ptr<ModuleState> norm;
  bool by_name;

  std::string text() const { return layer->path + " + " + norm->path; }
};

bool can_fold(const ModuleState& layer, const ModuleState& norm) {
  const Tensor weight = slot_of(layer.parameters, "weight");
  const Tensor mean = slot_of(norm.buffers, "running_mean");
  const bool has_bias = slot_of(layer.parameters, "bias").defined() || slot_of(norm.parameters, "bias").defined();
  bool tied = false;
  for (const ModuleState* module : {&layer, &norm}) {
    for (const auto& [name, tensor] : module->parameters) {
      tied = tied || tensor.unresolved()->registrations > 1;
    }
  }
  const bool fits = norm.type == "BatchNorm1d" ? layer.product->dims < 4 : layer.product->dims == 4;
  return fits && mean.defined() && has_bias && !tied && weight.size(0) == mean.numel() &&
         norm.batch_norm->folded != detail::versions_of(norm);
}

void find_pairs(ModuleState& parent, std::vector<Pair>& pairs) {
  for (std::size_t i = 0; i < parent.children.size(); ++i) {
    const auto& [layer_name, layer] = parent.children[i];
    find_pairs(*layer, pairs);
    if (layer->product == nullptr || i + 1 == parent.children.size()) {
      continue;
    }
    const auto& [norm_name, norm] = parent.children[i + 1];
    const bool neighbours = *parent.cpp_type == typeid(Sequential);
    if (norm->batch_norm != nullptr && (neighbours || are_named_alike(layer_name, norm_name)) &&
        can_fold(*layer, *norm)) {
      pairs.push_back({layer.get(), norm, !neighbours});
    }
  }
}

void fold(const Pair& pair) {
  ModuleState& layer = *pair.layer;
  ModuleState& norm = *pair.norm;
  const Tensor weight = slot_of(layer.parameters, "weight");
  const Tensor bias = slot_of(layer.parameters, "bias");
  const Tensor scale = slot_of(norm.parameters, "weight");
  const Tensor shift = slot_of(norm.parameters, "bias");
  const Tensor mean = slot_of(norm.buffers, "running_mean");
  const Tensor variance = slot_of(norm.buffers, "running_var");
  const auto exact = [&](const Tensor& tensor, double otherwise) {
    return tensor.defined() ? tensor.to(DType::f64)
                            : full({}, otherwise, {.dtype = DType::f64, .device = weight.device()});
  };
  const double eps = norm.batch_norm->eps;
  const Tensor factor = exact(scale, 1) / sqrt(exact(variance, 1) + eps);
  const Tensor rest = (exact(bias, 0) - exact(mean, 0)) * factor + exact(shift, 0);
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
  norm.batch_norm->folded = detail::versions_of(norm);
  norm.batch_norm->folded_dims = layer.product->dims;
  if (!bias.defined()) {
    layer.product->norm = pair.norm;
  }
}

}  // namespace

std::vector<std::string> fold_batch_norm(const ModuleRef& model, const std::function<Tensor()>& run) {
  const NoGradGuard no_grad;
  std::vector<Pair> pairs;
  find_pairs(detail::state_of(model), pairs);
  for (const Pair& pair : pairs) {
    check<ConfigError>(!pair.layer->training.get() && !pair.norm->training.get(),
                       "fold_batch_norm: {} is in training mode, in which batch norms use each batch's own statistics; "
                       "call model.eval() first",
                       pair.text());
    check<ConfigError>(!pair.by_name || run != nullptr,
                       "fold_batch_norm: {} are a pair by their names, which may mislead; give a function to compare "
                       "outputs before and after: fold_batch_norm(model, [&] {{ return model(x); }})",
                       pair.text());
  }
  const Tensor before = run ? run().to(DType::f64) : Tensor();
  const StateDict state = run ? model.state_dict().clone() : StateDict();
  std::vector<std::string> folded;
  for (const Pair& pair : pairs) {
    fold(pair);
    folded.push_back(pair.text());
  }
  tandem::detail::note_step_change();
  if (run) {
    try {
      const double change = (run().to(DType::f64) - before).abs().max().item();
      const double largest = before.abs().max().item();
      check<ValueError>(change <= 0.01 * largest,
                        "fold_batch_norm: the outputs change by {:.3g}, and the largest one is {:.3g}; nothing was "
                        "folded. A norm among these has another input than the layer before it: {}",
                        change, largest, fmt::join(folded, ", "));
    } catch (...) {
      ModuleRef(model).load_state_dict(state);
      throw;
    }
  }
  return folded;
}

}  // namespace tandem::inline v0::nn
