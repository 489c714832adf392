#include <tandem/nn/container.h>

#include <tandem/core/check.h>
#include <tandem/nn/module_state.h>

namespace tandem::inline v0::nn {

std::size_t detail::checked_index(const ModuleRef& list, std::size_t index, std::size_t size) {
  check<ConfigError>(index < size, "{}{}: there is no module {}, it holds {}", list.type_name(),
                     list.path().empty() ? "" : fmt::format(" '{}'", list.path()), index, size);
  return index;
}

Tensor Sequential::forward(const Tensor& input, std::size_t first, std::size_t last) const {
  check<ConfigError>(first <= last && last <= size(), "{}: there are no layers {} to {}, it holds {}", type_name(),
                     first, last, size());
  Tensor x = input;
  for (std::size_t i = first; i < last; ++i) {
    if (steps_[i]->call_relu != nullptr && i + 1 < last && steps_[i + 1]->is_relu) {
      x = steps_[i]->call_relu(*steps_[i], x);
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
