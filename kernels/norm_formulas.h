#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/core/host_device.h>
#include <tandem/kernels/norm.h>

// Internal: formulas of layer norm and batch norm that a CPU and a GPU share.

namespace tandem::inline v0::kernels {

/// Mean of some values and the sum of their squared distances from it.
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;

  /// Takes in the values of `other` (Chan, Golub and LeVeque, 1979).
  TANDEM_HD void add(const Moments& other) noexcept {
    if (other.count == 0) {
      return;
    }
    const double share = other.count / (count + other.count);
    const double apart = other.mean - mean;
    mean += apart * share;
    squares += other.squares + apart * apart * count * share;
    count += other.count;
  }
  TANDEM_HD NormStatistics statistics(double eps) const noexcept {
    return {mean, 1 / std::sqrt(squares / count + eps)};
  }
};

/// normalised = (x - mean) * rstd + shift: the mean rounded to C is taken off first, which is exact for close values,
/// then what rounding left of it.
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
