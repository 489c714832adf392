#include <tandem/optim/adagrad.h>

#include <cmath>

#include <tandem/core/check.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/optimizer.h>

namespace tandem::inline v0::optim {

Adagrad::Adagrad(const std::vector<Tensor>& parameters, const AdagradOptions& options)
    : Adagrad(std::vector<ParamGroup>{{.params = parameters}}, options) {}

Adagrad::Adagrad(const std::vector<ParamGroup>& groups, const AdagradOptions& options)
    : Optimizer("Adagrad", groups, {.lr = options.lr, .weight_decay = options.weight_decay},
                {{"sum", options.initial_accumulator_value}}, options.master_weights),
      options_(options) {
  check<ConfigError>(options.eps >= 0 && options.weight_decay >= 0 && options.lr_decay >= 0,
                     "Adagrad: lr_decay, weight_decay and eps must be >= 0, got {}, {} and {}", options.lr_decay,
                     options.weight_decay, options.eps);
  const double initial = options.initial_accumulator_value;
  check<ConfigError>(std::isfinite(initial) && initial >= 0,
                     "Adagrad: initial_accumulator_value must be a number >= 0, got {}", initial);
}

void Adagrad::update(const Slice& slice) {
  kernels::launch(kernels::context_for(slice.run.device), kernels::Adagrad{.dtype = slice.run.dtype,
                                                                           .count = slice.run.numel,
                                                                           .param = slice.run.values,
                                                                           .grad = slice.run.gradients,
                                                                           .sum = slice.buffers[0],
                                                                           .state = &slice.state,
                                                                           .lr_decay = options_.lr_decay,
                                                                           .eps = options_.eps,
                                                                           .maximize = options_.maximize,
                                                                           .master = slice.master});
}

}  // namespace tandem::inline v0::optim
