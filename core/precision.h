#pragma once

#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// How exactly products of f32 matrices are computed on a GPU; a CPU always takes "highest".
///
/// - "highest" (default): in f32.
/// - "high" and "medium": factors are rounded to TF32 (10 bits behind the point, sums in f32), several times as fast
///   where the GPU has tensor cores.
///
/// PyTorch's function of that name. For the whole process; captured steps keep what held when they were recorded.
/// Throws ConfigError for any other text.
TANDEM_API void set_float32_matmul_precision(std::string_view precision);
/// What was set last.
TANDEM_API std::string_view get_float32_matmul_precision() noexcept;

}  // namespace tandem::inline v0
