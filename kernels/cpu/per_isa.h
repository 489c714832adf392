#pragma once

#include <array>

#include <tandem/core/isa.h>

// Hot loops are compiled once per instruction set, from the sources in isa/. Each copy lives in a namespace of its own,
// named by the macro TANDEM_ISA, so that the linker can't take one instruction set's code for another's. For the same
// reason those sources call no inline function from outside, unless it is always inlined (a test checks this).

#if defined(__x86_64__)
/// Declares the bracketed functions in the namespace of each instruction set.
#define TANDEM_FOR_EACH_ISA(...) \
  namespace baseline {           \
  __VA_ARGS__                    \
  }                              \
  namespace avx2 {               \
  __VA_ARGS__                    \
  }                              \
  namespace avx512 {             \
  __VA_ARGS__                    \
  }
/// The function `name` for the instruction set in use, for code in tandem::kernels.
#define TANDEM_BY_ISA(name) \
  ::tandem::v0::kernels::cpu::by_isa({&cpu::baseline::name, &cpu::avx2::name, &cpu::avx512::name})
/// The function `name` for the instruction set in use, which only those with fused multiply-adds have. The baseline
/// must not be in use.
#define TANDEM_BY_FMA_ISA(name) \
  ::tandem::v0::kernels::cpu::by_isa<decltype(cpu::baseline::name)>({nullptr, &cpu::avx2::name, &cpu::avx512::name})
#else
#define TANDEM_FOR_EACH_ISA(...) \
  namespace baseline {           \
  __VA_ARGS__                    \
  }
#define TANDEM_BY_ISA(name) (&cpu::baseline::name)
#define TANDEM_BY_FMA_ISA(name) (static_cast<decltype(&cpu::baseline::name)>(nullptr))
#endif

namespace tandem::inline v0::kernels::cpu {

template <class Function>
Function* by_isa(Function* const (&functions)[3]) {
  return functions[static_cast<int>(core::isa())];
}

}  // namespace tandem::inline v0::kernels::cpu
