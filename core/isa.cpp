#include <tandem/core/isa.h>

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <fmt/ranges.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::core {

namespace {

#if defined(__x86_64__)
// clang 16's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

#if defined(__x86_64__)
bool has_pairs() { return isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16"); }

bool has_tiles() {
  constexpr unsigned kAmxBf16 = 1U << 22U;
  constexpr unsigned kAmxTile = 1U << 24U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

// Linux saves the tiles only of processes that have asked (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

// __builtin_cpu_supports also checks that the operating system saves the wide registers.
bool has(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  switch (isa) {
    case Isa::baseline: return true;
    case Isa::avx2: return avx2;
    case Isa::avx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::baseline;
}

Isa choose() {
  const std::vector<Isa> available = available_isas();
  const char* text = std::getenv("TANDEM_CPU_ISA");
  if (text == nullptr) {
    return available.back();
  }
  const auto named = std::ranges::find(available, std::string_view(text), [](Isa isa) { return to_string(isa); });
  if (named == available.end()) {
    std::vector<std::string_view> names;
    std::ranges::transform(available, std::back_inserter(names), [](Isa isa) { return to_string(isa); });
    fail<ConfigError>("TANDEM_CPU_ISA='{}': expected one that this machine has: {}", text, fmt::join(names, ", "));
  }
  return *named;
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

bool has_bf16_products() {
#if defined(__x86_64__)
  static const bool has = has_pairs() && (!has_tiles() || has_amx());
  return has;
#else
  return false;
#endif
}

bool has_amx() {
#if defined(__x86_64__)
  static const bool has = has_pairs() && has_tiles() && may_use_tiles();
  return has;
#else
  return false;
#endif
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

std::vector<Isa> available_isas() {
  std::vector<Isa> available;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (has(isa)) {
      available.push_back(isa);
    }
  }
  return available;
}

const char* to_string(Isa isa) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(isa)];
}

}  // namespace tandem::inline v0::core
