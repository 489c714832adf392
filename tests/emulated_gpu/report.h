#pragma once

#include <string>

namespace emulated_gpu::detail {

// Wrong use that a real GPU would let pass, or answer with nonsense.
[[noreturn]] void report_and_abort(const std::string& what);

// The OS thread gets a stack for signals, unless it has one: a fault may come from a stack that is full.
void provide_signal_stack();

}  // namespace emulated_gpu::detail
