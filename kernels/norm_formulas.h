#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tandem/core/export.h>

// Formulas that layer norm and batch norm share, on a CPU and on a GPU.

namespace tandem::inline v0::kernels {

/// Statistics that normalise a row of a layer norm or a channel of a batch norm. They are f64 for every type, so that
/// values close together around a large mean keep their digits.
struct NormStatistics {
  double mean;  // of the values
  double rstd;  // 1 / sqrt(variance + eps)
};

/// a / b of counts. A GPU's f32 result may be off by two units in the last place.
template <class C>
TANDEM_HD C quotient(C a, C b) noexcept {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<C, float>) {
    return __fdividef(a, b);
  }
#endif
  return a / b;
}

/// Mean of some values and the sum of their squared distances from it.
template <class C = double>
struct Moments {
  C count = 0;
  C mean = 0;
  C squares = 0;

  /// Takes in the values of `other` (Chan, Golub and LeVeque, 1979).
  [[gnu::always_inline]] TANDEM_HD void add(const Moments& other) noexcept {
    add(other, other.count > C(0) ? quotient(other.count, count + other.count) : C(0));
  }
  /// `share` is that of the values of `other` among all values.
  [[gnu::always_inline]] TANDEM_HD void add(const Moments& other, C share) noexcept {
    const C apart = other.count > C(0) ? other.mean - mean : C(0);  // an infinite mean stays
    mean += apart * share;
    squares += other.squares + apart * apart * count * share;
    count += other.count;
  }
  friend TANDEM_HD Moments operator+(Moments a, const Moments& b) noexcept {
    a.add(b);
    return a;
  }
  TANDEM_HD NormStatistics statistics(double eps) const noexcept {
    return {mean, 1 / std::sqrt(squares / count + eps)};
  }
};

/// normalised = (x - mean) * rstd + shift. x - mean uses the mean rounded to C, which is exact for close values; shift
/// makes up for that rounding.
template <class C>
struct Normaliser {
  C mean;
  C rstd;
  C shift;

  Normaliser() = default;
  TANDEM_HD explicit Normaliser(const NormStatistics& s)
      : mean(static_cast<C>(s.mean)),
        rstd(static_cast<C>(s.rstd)),
        shift(static_cast<C>((static_cast<double>(mean) - s.mean) * s.rstd)) {}
};

}  // namespace tandem::inline v0::kernels
