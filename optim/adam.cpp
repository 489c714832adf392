#include <tandem/optim/adam.h>

#include <tandem/core/check.h>
#include <tandem/kernels/fused_update.h>

namespace tandem::inline v0::optim {

Adam::Adam(const std::vector<Tensor>& parameters, const AdamOptions& options)
    : Adam(std::vector<ParamGroup>{{.params = parameters}}, options) {}

Adam::Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options) : Adam("Adam", groups, options, false) {}

Adam::Adam(const char* name, const std::vector<ParamGroup>& groups, const AdamOptions& options, bool decoupled)
    : Optimizer(name, groups, {.lr = options.lr, .weight_decay = options.weight_decay, .momentum = options.betas.first},
                options.amsgrad ? std::vector<BufferKind>{{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}}
                                : std::vector<BufferKind>{{"exp_avg"}, {"exp_avg_sq"}},
                options.master_weights),
      options_(options),
      decoupled_(decoupled) {
  check<ConfigError>(
      options.betas.first >= 0 && options.betas.first < 1 && options.betas.second >= 0 && options.betas.second < 1,
      "{}: betas must be in [0, 1), got {} and {}", name, options.betas.first, options.betas.second);
  check<ConfigError>(options.eps >= 0 && options.weight_decay >= 0,
                     "{}: eps and weight_decay must be >= 0, got {} and {}", name, options.eps, options.weight_decay);
  second_momentum_ = options.betas.second;
  fuses_products_ = true;
}

AdamW::AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParamGroup>{{.params = parameters}}, options) {}

AdamW::AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& options)
    : Adam("AdamW", groups,
           {.lr = options.lr,
            .betas = options.betas,
            .eps = options.eps,
            .weight_decay = options.weight_decay,
            .amsgrad = options.amsgrad,
            .maximize = options.maximize,
            .master_weights = options.master_weights},
           true) {}

void Adam::update(const Slice& slice) {
  kernels::launch_update<kernels::MatmulAdam>(
      kernels::context_for(slice.run.device), slice.product,
      kernels::Adam{.dtype = slice.run.dtype,
                    .count = slice.run.numel,
                    .param = slice.run.values,
                    .grad = slice.run.gradients,
                    .exp_avg = slice.buffers[0],
                    .exp_avg_sq = slice.buffers[1],
                    .state = &slice.state,
                    .beta2 = options_.betas.second,
                    .eps = options_.eps,
                    .decoupled = decoupled_,
                    .max_exp_avg_sq = options_.amsgrad ? slice.buffers[2] : nullptr,
                    .maximize = options_.maximize,
                    .master = slice.master});
}

}  // namespace tandem::inline v0::optim
