#include <tandem/tensor/generator.h>

#include <tandem/core/thread_state.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0 {

Generator::~Generator() {
  if (recorded_) {
    detail::note_step_change();
  }
}

std::uint64_t Generator::reserve(std::uint64_t blocks) {
  const std::uint64_t first = reserve_blocks(blocks);
  if (detail::StepRecorder* recorder = detail::step_recorder(); recorder != nullptr) [[unlikely]] {
    Generator& replayed = whole_ != nullptr ? *whole_ : *this;
    replayed.recorded_ = true;
    recorder->on_draw(replayed, first, blocks);
  }
  return first;
}

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
