#pragma once

#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Sets the precision of f32 matrix products on a GPU; a CPU always uses "highest".
///
/// - "highest" (default): in f32.
/// - "high" and "medium": factors are rounded to TF32 (10 fraction bits, sums in f32). This is several times as fast on
///   a GPU with tensor cores.
///
/// The function has the same name and meaning as in PyTorch. The setting applies to the whole process; a captured step
/// keeps the precision under which it was recorded. Throws ConfigError for any other text.
TANDEM_API void set_float32_matmul_precision(std::string_view precision);
/// The current setting.
TANDEM_API std::string_view get_float32_matmul_precision() noexcept;

}  // namespace tandem::inline v0
