#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tandem/core/isa.h>

#include "kernel/floor_loops.h"

namespace bench::kernel {

#if defined(__x86_64__)
namespace baseline {
extern const FloorLoops kLoops;
}
namespace avx2 {
extern const FloorLoops kLoops;
}
namespace avx512 {
extern const FloorLoops kLoops;
}
#else
namespace baseline {
extern const FloorLoops kLoops;
}
#endif

const FloorLoops& floor_loops() {
#if defined(__x86_64__)
  switch (tandem::core::isa()) {
    case tandem::core::Isa::avx512: return avx512::kLoops;
    case tandem::core::Isa::avx2: return avx2::kLoops;
    default: return baseline::kLoops;
  }
#else
  return baseline::kLoops;
#endif
}

#if defined(__x86_64__)
namespace {

[[gnu::target("avx512f,avx512bf16")]] double multiply_add_bf16(std::int64_t rounds) {
  constexpr int kSums = 12;
  __m512 sums[kSums] = {};
  __m512i factor = _mm512_setzero_si512();
  asm volatile("" : "+v"(factor));
#pragma GCC unroll 12
  for (int k = 0; k < kSums; ++k) {
    asm volatile("" : "+v"(sums[k]));  // so that the compiler does not know them to be equal
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums; ++k) {
      asm("vdpbf16ps %1, %1, %0" : "+v"(sums[k]) : "v"(factor));
    }
  }
#pragma GCC unroll 12
  for (int k = 0; k < kSums; ++k) {
    asm volatile("" : : "v"(sums[k]));
  }
  return 4.0 * kSums * 16;
}

struct alignas(64) RegisterSizes {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr RegisterSizes kFullSize;  // GCC 12 would leave out parts of a local variable

[[gnu::target("amx-tile,amx-bf16")]] double multiply_add_amx(std::int64_t rounds) {
  _tile_loadconfig(&kFullSize);  // and zeros in all registers
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 32 * 2;
}

}  // namespace
#endif

double multiply_add(const std::string& dtype, std::int64_t rounds) {
#if defined(__x86_64__)
  if (dtype == "bf16" && tandem::core::has_bf16_products()) {
    return tandem::core::has_amx() ? multiply_add_amx(rounds) : multiply_add_bf16(rounds);
  }
#endif
  return dtype == "f64" ? floor_loops().multiply_add_f64(rounds) : floor_loops().multiply_add_f32(rounds);
}

}  // namespace bench::kernel
