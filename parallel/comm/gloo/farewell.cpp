#include <tandem/parallel/comm/gloo/farewell.h>

#include <algorithm>
#include <string_view>

#include <tandem/parallel/comm/collective.h>

namespace tandem::inline v0::parallel {

namespace {

template <std::size_t N>
void put(std::string_view text, char (&to)[N]) {
  text = text.substr(0, N - 1);
  *std::copy(text.begin(), text.end(), to) = '\0';
}

// Details hold a name that lives for ever.
const char* known_op(std::string_view name) {
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::new_group); ++kind) {
    if (const char* known = to_string(static_cast<CollectiveKind>(kind)); name == known) {
      return known;
    }
  }
  return "";
}

}  // namespace

Farewell::Farewell(const CommError& error)
    : fault(error.details().fault),
      rank(error.details().rank),
      generation(error.details().generation),
      sequence(error.details().sequence),
      bytes(error.details().bytes),
      elapsed(error.details().elapsed) {
  put(error.details().op, op);
  put(error.what(), text);
}

CommError Farewell::error() const {
  return CommError(text, {.fault = fault,
                          .rank = rank,
                          .generation = generation,
                          .sequence = sequence,
                          .op = known_op(op),
                          .bytes = bytes,
                          .elapsed = elapsed});
}

}  // namespace tandem::inline v0::parallel
