#include <tandem/kernels/cpu/optimizer_loops.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

void sgd_f32(const SgdLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  scaled ? loop.run<true>(begin, end) : loop.run<false>(begin, end);
}

void adam_f32(const AdamLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  scaled ? loop.run<true>(begin, end) : loop.run<false>(begin, end);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
