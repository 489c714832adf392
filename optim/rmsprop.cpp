#include <tandem/optim/rmsprop.h>

#include <tandem/core/check.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/optimizer.h>

namespace tandem::inline v0::optim {

RMSprop::RMSprop(const std::vector<Tensor>& parameters, const RMSpropOptions& options)
    : RMSprop(std::vector<ParamGroup>{{.params = parameters}}, options) {}

RMSprop::RMSprop(const std::vector<ParamGroup>& groups, const RMSpropOptions& options)
    : Optimizer(
          "RMSprop", groups, {.lr = options.lr, .weight_decay = options.weight_decay, .momentum = options.momentum},
          [&] {
            std::vector<BufferKind> buffers{{"square_avg"}};
            if (options.momentum != 0) {
              buffers.push_back({"momentum_buffer"});
            }
            if (options.centered) {
              buffers.push_back({"grad_avg"});
            }
            return buffers;
          }(),
          options.master_weights),
      options_(options) {
  check<ConfigError>(options.alpha >= 0 && options.alpha < 1, "RMSprop: alpha must be in [0, 1), got {}",
                     options.alpha);
  check<ConfigError>(options.eps >= 0 && options.weight_decay >= 0 && options.momentum >= 0,
                     "RMSprop: eps, weight_decay and momentum must be >= 0, got {}, {} and {}", options.eps,
                     options.weight_decay, options.momentum);
}

void RMSprop::update(const Slice& slice) {
  const bool has_momentum = options_.momentum != 0;
  kernels::launch(kernels::context_for(slice.run.device),
                  kernels::RmsProp{.dtype = slice.run.dtype,
                                   .count = slice.run.numel,
                                   .param = slice.run.values,
                                   .grad = slice.run.gradients,
                                   .square_avg = slice.buffers[0],
                                   .grad_avg = options_.centered ? slice.buffers.back() : nullptr,
                                   .momentum_buffer = has_momentum ? slice.buffers[1] : nullptr,
                                   .state = &slice.state,
                                   .alpha = options_.alpha,
                                   .eps = options_.eps,
                                   .maximize = options_.maximize,
                                   .master = slice.master});
}

}  // namespace tandem::inline v0::optim
