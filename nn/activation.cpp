#include <tandem/nn/activation.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::nn {

GELU::GELU(GELUApproximation approximate) : approximate_(approximate) {
  describe(approximate == GELUApproximation::tanh ? "approximate='tanh'" : "approximate='none'");
}

LeakyReLU::LeakyReLU(double negative_slope) : negative_slope_(negative_slope) {
  describe(fmt::format("negative_slope={}", negative_slope));
}

ELU::ELU(double alpha) : alpha_(alpha) { describe(fmt::format("alpha={}", alpha)); }

Softplus::Softplus(double beta, double threshold) : beta_(beta), threshold_(threshold) {
  check<ConfigError>(beta != 0, "Softplus: beta must not be 0");
  describe(fmt::format("beta={}, threshold={}", beta, threshold));
}

Softmax::Softmax(int dim) : dim_(dim) { describe(fmt::format("dim={}", dim)); }
LogSoftmax::LogSoftmax(int dim) : dim_(dim) { describe(fmt::format("dim={}", dim)); }

}  // namespace tandem::inline v0::nn
