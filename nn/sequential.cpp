#include <tandem/nn/sequential.h>

#include <tandem/core/check.h>
#include <tandem/nn/module_state.h>

namespace tandem::inline v0::nn {

Tensor Sequential::forward(const Tensor& input) const {
  Tensor x = input;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Linear* layer = steps_[i]->as_linear();
    if (layer != nullptr && i + 1 < steps_.size() && steps_[i + 1]->is_relu()) {
      const CallScope scope(*layer);
      x = layer->forward_relu(x);
      ++i;
    } else {
      x = steps_[i]->call(x);
    }
  }
  return x;
}

void Sequential::throw_other_type(std::size_t index, const std::type_info& expected) const {
  const auto& [name, layer] = live_state().children[index];
  fail<ConfigError>("{}: get: layer {} '{}' is a {}, not a {}", type_name(), index, name, layer->type,
                    detail::short_type_name(expected));
}

}  // namespace tandem::inline v0::nn
