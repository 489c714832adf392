#pragma once

namespace tandem::inline v0::nn::detail {

/// Internal: the inverse of the standard normal distribution function at p, 0 < p < 1. Accurate to about 16 digits,
/// also for the smallest p (Wichura, algorithm AS 241, Applied Statistics 37, 1988).
double normal_quantile(double p);

}  // namespace tandem::inline v0::nn::detail
