#pragma once

namespace tandem::inline v0::nn::detail {

/// Internal: the x below which a standard normal variable is with probability p, 0 < p < 1; to about 16 digits, also
/// for the smallest p (Wichura, algorithm AS 241, Applied Statistics 37, 1988).
double normal_quantile(double p);

}  // namespace tandem::inline v0::nn::detail
