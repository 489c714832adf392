#pragma once

#include <string>

namespace emulated_gpu::detail {

// Reports wrong use that a real GPU would accept silently or answer with nonsense.
[[noreturn]] void report_and_abort(const std::string& what);

// Gives the OS thread a stack for signals unless it has one: a fault may happen on a full stack.
void provide_signal_stack();

}  // namespace emulated_gpu::detail
