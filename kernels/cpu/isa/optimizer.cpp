#include <tandem/kernels/cpu/optimizer_loops.h>

#include <tandem/kernels/cpu/isa/simd.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Takes ownership of cache lines before they are written. Replicas on several cores have all read the parameters, so a
// write to a line would otherwise have to wait until the other cores give up their copies.
void own_lines(const float* data, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t i = begin; i < end; i += kLine) {
    own_line(data + i);
  }
}

template <class Loop>
void run_loop(const Loop& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 512;  // the lines of the next block arrive while one is computed
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t stop = i + kBlock < end ? i + kBlock : end;
    own_lines(loop.param, stop, stop + kBlock < end ? stop + kBlock : end);
    scaled ? loop.template run<true>(i, stop) : loop.template run<false>(i, stop);
  }
}

}  // namespace

void sgd_f32(const SgdLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  run_loop(loop, scaled, begin, end);
}

void rmsprop_f32(const RmsPropLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  run_loop(loop, scaled, begin, end);
}

void adagrad_f32(const AdagradLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  run_loop(loop, scaled, begin, end);
}

void adam_f32(const AdamLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  run_loop(loop, scaled, begin, end);
}

bool any_nonfinite_f32(const float* values, float factor, std::int64_t begin, std::int64_t end) {
  int bad = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    bad |= static_cast<int>(!(__builtin_fabsf(values[i] * factor) <= __FLT_MAX__));
  }
  return bad != 0;
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
