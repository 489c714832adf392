#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// The instruction sets for which the hot loops are compiled, once each. The process selects one at the first query.
enum class Isa : unsigned char {
  baseline,  ///< the compiler's target for every machine (SSE2 on x86-64)
  avx2,      ///< AVX2, FMA and F16C
  avx512,    ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
};

/// The best instruction set of this machine, or the lower one that TANDEM_CPU_ISA names ("baseline", "avx2", "avx512").
/// Throws ConfigError if the name is unknown or this machine does not support it.
TANDEM_API Isa isa();

/// Whether the processor multiplies bf16 numbers itself (AVX512-BF16). False if isa() is not avx512, and where the
/// processor has AMX but has_amx() is false: its other products of bf16 are slower than those of f32.
TANDEM_API bool has_bf16_products();
/// Whether it also has tiles for such products (AMX), and the operating system lets this process use them, which the
/// first call asks for. From then on an alternative stack for signals has to hold the tiles, too:
/// sysconf(_SC_MINSIGSTKSZ) bytes.
TANDEM_API bool has_amx();

/// Whether Intel made the processor. On its servers a core reaches the shared cache more slowly than on AMD's, and its
/// second-level cache is larger. (Measured on Sapphire Rapids only.)
TANDEM_API bool is_intel();

/// The instruction sets that this machine can run, lowest first.
TANDEM_API std::vector<Isa> available_isas();

/// "baseline", "avx2", "avx512".
TANDEM_API const char* to_string(Isa isa);

}  // namespace tandem::inline v0::core
