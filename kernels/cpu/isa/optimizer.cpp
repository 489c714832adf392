#include <tandem/kernels/cpu/optimizer_loops.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

void sgd_f32(const SgdLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  scaled ? loop.run<true>(begin, end) : loop.run<false>(begin, end);
}

void adam_f32(const AdamLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 512;
  for (std::int64_t b = begin; b < end; b += kBlock) {
    const std::int64_t stop = b + kBlock < end ? b + kBlock : end;
    for (std::int64_t i = stop; i < stop + kBlock && i < end; i += 16) asm volatile("prefetchw %0" : : "m"(loop.param[i]));
    scaled ? loop.run<true>(b, stop) : loop.run<false>(b, stop);
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
