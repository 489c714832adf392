#include <tandem/nn/stateless.h>

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

Dropout::Dropout(double p) : p_(p) {
  check<ConfigError>(p >= 0 && p <= 1, "Dropout: the probability must be between 0 and 1, got {} [TDM-E313]", p);
  describe(fmt::format("p={}", p));
}

Dropout2d::Dropout2d(double p) : p_(p) {
  check<ConfigError>(p >= 0 && p <= 1, "Dropout2d: the probability must be between 0 and 1, got {} [TDM-E313]", p);
  describe(fmt::format("p={}", p));
}

Upsample::Upsample(std::int64_t scale_factor, const UpsampleOptions& options)
    : scale_factor_(scale_factor), options_(options) {
  check<ConfigError>(scale_factor >= 1, "Upsample: the scale_factor must be at least 1, got {}", scale_factor);
  describe(fmt::format("scale_factor={}, mode={}", scale_factor,
                       options.mode == InterpolateMode::nearest ? "nearest" : "bilinear"));
}

Flatten::Flatten(int start_dim, int end_dim) : start_dim_(start_dim), end_dim_(end_dim) {
  describe(fmt::format("start_dim={}, end_dim={}", start_dim, end_dim));
}

}  // namespace tandem::inline v0::nn
