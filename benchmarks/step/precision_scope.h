#pragma once

#include <string>
#include <string_view>

#include <tandem/kernels/matmul_tuning.h>

namespace bench {

/// Sets the precision of f32 products for as long as it lives.
class PrecisionScope {
 public:
  explicit PrecisionScope(std::string_view precision) : before_(tandem::get_float32_matmul_precision()) {
    tandem::set_float32_matmul_precision(precision);
  }
  ~PrecisionScope() { tandem::set_float32_matmul_precision(before_); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  std::string before_;
};

}  // namespace bench
