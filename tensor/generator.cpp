#include <tandem/tensor/generator.h>

#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

void Generator::manual_seed(std::uint64_t seed) noexcept {
  seed_ = seed;
  set_offset(0);
}

Generator& current_generator() noexcept {
  static Generator process_wide;
  Generator* scoped = core::thread_state().generator;
  return scoped != nullptr ? *scoped : process_wide;
}

void manual_seed(std::uint64_t seed) noexcept { current_generator().manual_seed(seed); }

GeneratorScope::GeneratorScope(Generator& generator) noexcept : saved_(core::thread_state().generator) {
  core::thread_state().generator = &generator;
}

GeneratorScope::~GeneratorScope() { core::thread_state().generator = saved_; }

}  // namespace tandem::inline v0
