#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// The instruction sets that hot loops are compiled for, once each; what runs is chosen when the process first asks.
enum class Isa : unsigned char {
  baseline,  ///< what the compiler was told to assume of every machine (SSE2 on x86-64)
  avx2,      ///< AVX2 and FMA
  avx512,    ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
};

/// The best that this machine has, or the lower one that TANDEM_CPU_ISA names ("baseline", "avx2", "avx512").
/// Throws ConfigError where that is not a name, or not one of this machine's.
TANDEM_API Isa isa();

/// Those that this machine can run, lowest first.
TANDEM_API std::vector<Isa> available_isas();

/// "baseline", "avx2", "avx512".
TANDEM_API const char* to_string(Isa isa);

}  // namespace tandem::inline v0::core
