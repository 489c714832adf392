#include <tandem/core/precision.h>

#include <array>
#include <atomic>
#include <cstddef>

#include <tandem/core/check.h>

namespace tandem::inline v0 {

namespace {

constexpr std::array<std::string_view, 3> kNames{"highest", "high", "medium"};
constinit std::atomic<std::size_t> chosen{0};

}  // namespace

void set_float32_matmul_precision(std::string_view precision) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == precision) {
      chosen.store(i, std::memory_order_relaxed);
      return;
    }
  }
  fail<ConfigError>("set_float32_matmul_precision: '{}' is not known; choose 'highest', 'high' or 'medium'", precision);
}

std::string_view get_float32_matmul_precision() noexcept { return kNames[chosen.load(std::memory_order_relaxed)]; }

}  // namespace tandem::inline v0
