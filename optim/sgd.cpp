#include <tandem/optim/sgd.h>

#include <tandem/core/check.h>
#include <tandem/kernels/fused_update.h>

namespace tandem::inline v0::optim {

SGD::SGD(const std::vector<Tensor>& parameters, const SGDOptions& options)
    : SGD(std::vector<ParamGroup>{{.params = parameters}}, options) {}

SGD::SGD(const std::vector<ParamGroup>& groups, const SGDOptions& options)
    : Optimizer("SGD", groups, {.lr = options.lr, .weight_decay = options.weight_decay, .momentum = options.momentum},
                options.momentum != 0 ? std::vector<BufferKind>{{"momentum_buffer"}} : std::vector<BufferKind>{},
                options.master_weights),
      options_(options) {
  check<ConfigError>(options.momentum >= 0 && options.weight_decay >= 0,
                     "SGD: momentum and weight_decay must be >= 0, got {} and {}", options.momentum,
                     options.weight_decay);
  check<ConfigError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                     "SGD: nesterov needs momentum > 0 and dampening = 0, got {} and {}", options.momentum,
                     options.dampening);
  fuses_products_ = true;
}

SGD::SGD(std::initializer_list<ParamGroup> groups, const SGDOptions& options)
    : SGD(std::vector<ParamGroup>(groups), options) {}

void SGD::update(const Slice& slice) {
  kernels::launch_update<kernels::MatmulSgd>(
      kernels::context_for(slice.run.device), slice.product,
      kernels::Sgd{.dtype = slice.run.dtype,
                   .count = slice.run.numel,
                   .param = slice.run.values,
                   .grad = slice.run.gradients,
                   .momentum_buffer = slice.buffers.empty() ? nullptr : slice.buffers[0],
                   .state = &slice.state,
                   .dampening = options_.dampening,
                   .nesterov = options_.nesterov,
                   .maximize = options_.maximize,
                   .master = slice.master});
}

}  // namespace tandem::inline v0::optim
