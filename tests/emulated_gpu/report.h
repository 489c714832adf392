#pragma once

#include <string>

namespace emulated_gpu::detail {

// Wrong use that a real GPU would let pass, or answer with nonsense.
[[noreturn]] void report_and_abort(const std::string& what);

}  // namespace emulated_gpu::detail
