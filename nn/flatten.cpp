#include <tandem/nn/flatten.h>

#include <fmt/format.h>

namespace tandem::inline v0::nn {

Flatten::Flatten(int start_dim, int end_dim) : start_dim_(start_dim), end_dim_(end_dim) {
  describe(fmt::format("start_dim={}, end_dim={}", start_dim, end_dim));
}

}  // namespace tandem::inline v0::nn
