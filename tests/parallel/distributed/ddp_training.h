#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

namespace tandem::test {

/// Trains a small model over `group` with different batches on each rank; in each epoch the later ranks have fewer
/// batches. Returns every bit of the final weights as text.
inline std::string trained_bits(parallel::ProcessGroup& group, double bucket_cap_mb) {
  manual_seed(5);
  struct Net : nn::Module<Net> {
    nn::Linear first = child("first", nn::Linear(7, 33));
    nn::Linear second = child("second", nn::Linear(33, 3));
    Tensor forward(const Tensor& x) const { return second(relu(first(x))); }
  } model;
  parallel::DistributedDataParallel ddp(model, {.process_group = &group, .bucket_cap_mb = bucket_cap_mb});
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  manual_seed(static_cast<std::uint64_t>(group.rank()));
  for (int epoch = 0; epoch < 4; ++epoch) {
    parallel::Join join(ddp);
    for (int step = 0; step < 12 - group.rank(); ++step) {
      const std::int64_t rows = 1 + (step + group.rank()) % 5;
      adam.zero_grad();
      nn::cross_entropy(ddp(randn({rows, 7})), randint(0, 3, {rows})).backward();
      adam.step();
    }
    join.finish([&] { adam.step(); });
  }
  std::string bits;
  for (const Tensor& parameter : model.parameters()) {
    for (const float value : parameter.detach().to_vector<float>()) {
      std::uint32_t word = 0;
      std::memcpy(&word, &value, sizeof word);
      bits += fmt::format("{:08x}", word);
    }
  }
  return bits;
}

}  // namespace tandem::test
