#include <tandem/core/thread_state.h>

#include <cctype>
#include <string_view>

#include <fmt/format.h>

namespace tandem::inline v0::core {

namespace {

// Whether module type and op are one word, such as "LayerNorm" and "layer_norm"; a message names that word only once.
bool same_word(std::string_view type, std::string_view op) {
  std::size_t i = 0;
  for (const char letter : op) {
    if (letter == '_') {
      continue;
    }
    if (i == type.size() || std::tolower(static_cast<unsigned char>(type[i])) != letter) {
      return false;
    }
    ++i;
  }
  return i == type.size();
}

}  // namespace

std::string message_prefix(const char* op) {
  const ModuleScope* scope = thread_state().scope;
  if (scope == nullptr) {
    return *op == '\0' ? std::string() : fmt::format("{}: ", op);
  }
  std::string prefix =
      *scope->path == '\0' ? fmt::format("{}: ", scope->type) : fmt::format("{} '{}': ", scope->type, scope->path);
  return *op == '\0' || same_word(scope->type, op) ? prefix : fmt::format("{}{}: ", prefix, op);
}

}  // namespace tandem::inline v0::core
