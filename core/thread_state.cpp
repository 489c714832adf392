#include <tandem/core/thread_state.h>

#include <cctype>
#include <string_view>

#include <fmt/format.h>

namespace tandem::inline v0::core {

namespace {

// "Linear" is what "linear" runs in: saying both would be saying it twice.
bool same_word(std::string_view type, std::string_view op) {
  if (type.size() != op.size()) {
    return false;
  }
  for (std::size_t i = 0; i < type.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(type[i])) != op[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string message_prefix(const char* op) {
  const ModuleScope* scope = thread_state().scope;
  if (scope == nullptr) {
    return fmt::format("{}: ", op);
  }
  std::string prefix =
      *scope->path == '\0' ? fmt::format("{}: ", scope->type) : fmt::format("{} '{}': ", scope->type, scope->path);
  return *op == '\0' || same_word(scope->type, op) ? prefix : fmt::format("{}{}: ", prefix, op);
}

}  // namespace tandem::inline v0::core
