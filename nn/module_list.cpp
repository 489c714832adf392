#include <tandem/nn/module_list.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::nn::detail {

std::size_t checked_index(const ModuleRef& list, std::size_t index, std::size_t size) {
  check<ConfigError>(index < size, "{}{}: there is no module {}, it holds {}", list.type_name(),
                     list.path().empty() ? "" : fmt::format(" '{}'", list.path()), index, size);
  return index;
}

}  // namespace tandem::inline v0::nn::detail
