#include <tandem/optim/clip.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter_store.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/kernels/clip.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

namespace {

// The ranks that have other elements of the parameter's gradient; usually null. The first ones share out what the
// second ones have divided.
using Holders = std::array<std::shared_ptr<autograd::StepPartners>, 2>;

Holders holders_of(const Tensor& parameter) {
  using autograd::PartnerKind;
  const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
  return leaf != nullptr ? Holders{leaf->partners.get(PartnerKind::shard), leaf->partners.require(PartnerKind::tensor)}
                         : Holders{};
}

std::vector<ParameterRun> all_gradients(const std::vector<Tensor>& parameters, const std::vector<Tensor>& sorted) {
  for (const Tensor& parameter : parameters) {
    if (const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved()); leaf != nullptr) {
      leaf->check_usable();
      leaf->settle();
    }
  }
  return gradient_runs(sorted,
                       [&](std::size_t i, std::size_t j) { return holders_of(sorted[i]) == holders_of(sorted[j]); });
}

// Marks the gradients as changed, so that a graph that saved one notices.
void mark_changed(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    if (leaf != nullptr && leaf->fresh()) {
      leaf->raw_grad().storage->bump_version();
    }
  }
}

// Adds the powers of the gradients' elements to `total`, an f64; with an infinite `norm_type` it becomes the largest.
void add_powers(const std::vector<ParameterRun>& runs, Device device, double norm_type, double* total) {
  for (const ParameterRun& run : runs) {
    check<DeviceError>(run.device == device,
                       "clip_grad_norm_: gradients are on {} and {}; clip them one device at a time", device,
                       run.device);
    if (norm_type == 2) {
      kernels::launch(kernels::context_for(device), kernels::SquaredNorm{.dtype = run.dtype,
                                                                         .accumulate = kernels::Accumulate::yes,
                                                                         .count = run.numel,
                                                                         .values = run.gradients,
                                                                         .total = total});
    } else {
      kernels::launch(kernels::context_for(device), kernels::PowerNorm{.dtype = run.dtype,
                                                                       .accumulate = kernels::Accumulate::yes,
                                                                       .count = run.numel,
                                                                       .values = run.gradients,
                                                                       .total = total,
                                                                       .power = norm_type});
    }
  }
}

// The norm of all runs together, in f64 on `device`. Runs whose other elements the same ranks have are exchanged at
// once.
Tensor total_norm(const std::vector<ParameterRun>& runs, const std::vector<Tensor>& sorted, Device device,
                  double norm_type) {
  std::vector<std::pair<Holders, std::vector<ParameterRun>>> all;
  for (const ParameterRun& run : runs) {
    const Holders holders = holders_of(sorted[run.first]);
    auto same = std::ranges::find(all, holders, [](const auto& each) { return each.first; });
    if (same == all.end()) {
      same = all.emplace(all.end(), holders, std::vector<ParameterRun>());
    }
    same->second.push_back(run);
  }
  using Total = autograd::StepPartners::Total;
  const bool is_largest = std::isinf(norm_type);
  Tensor gathered = zeros({}, {.dtype = DType::f64, .device = device});
  for (const auto& [holders, its_runs] : all) {
    if (holders == Holders{}) {
      add_powers(its_runs, device, norm_type, static_cast<double*>(gathered.raw().data()));
      continue;
    }
    const Tensor of_ranks = zeros({1}, {.dtype = DType::f64, .device = device});
    add_powers(its_runs, device, norm_type, static_cast<double*>(of_ranks.raw().data()));
    for (const std::shared_ptr<autograd::StepPartners>& ranks : holders) {
      if (ranks != nullptr) {
        ranks->total(of_ranks.raw(), is_largest ? Total::largest : Total::sum);
      }
    }
    gathered = is_largest ? maximum(gathered, of_ranks.view({})) : gathered + of_ranks.view({});
  }
  if (is_largest || norm_type == 1) {
    return gathered;
  }
  return norm_type == 2 ? gathered.sqrt() : gathered.pow(1 / norm_type);
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  check<ConfigError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got {}", max_norm);
  check<ConfigError>(norm_type > 0, "clip_grad_norm_: norm_type must be > 0, got {}", norm_type);
  check<ConfigError>(!parameters.empty(), "clip_grad_norm_: the list of parameters is empty");
  const NoGradGuard no_grad;
  const Device device = parameters[0].device();
  const std::vector<Tensor> sorted = sorted_by_place(parameters);
  const std::vector<ParameterRun> runs = all_gradients(parameters, sorted);
  const Tensor norm = total_norm(runs, sorted, device, norm_type);
  const auto* value = static_cast<const double*>(norm.raw().data());
  if (error_if_nonfinite) {
    const auto check_finite = [](double found) {
      check<ValueError>(std::isfinite(found),
                        "clip_grad_norm_: the norm of the gradients is {}, not finite; nothing was scaled. Look for "
                        "what overflows, or lower the learning rate [TDM-E208]",
                        found);
    };
    if (device.type == DeviceType::cuda) {
      detail::note_host_access("clip_grad_norm_ with error_if_nonfinite");
      check_finite(norm.item());
    } else {
      detail::host_work("clip_grad_norm_", [=] { check_finite(*value); });
    }
  }
  for (const ParameterRun& run : runs) {
    kernels::launch(
        kernels::context_for(device),
        kernels::ClipByNorm{
            .dtype = run.dtype, .count = run.numel, .values = run.gradients, .norm = value, .max_norm = max_norm});
  }
  mark_changed(parameters);
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  check<ConfigError>(clip_value >= 0, "clip_grad_value_: clip_value must be >= 0, got {}", clip_value);
  for (const ParameterRun& run : all_gradients(parameters, sorted_by_place(parameters))) {
    kernels::launch(
        kernels::context_for(run.device),
        kernels::ClipByValue{.dtype = run.dtype, .count = run.numel, .values = run.gradients, .limit = clip_value});
  }
  mark_changed(parameters);
}

}  // namespace tandem::inline v0::optim
