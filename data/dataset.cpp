#include <tandem/data/dataset.h>

#include <cmath>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// Samples of one shape as the rows of a batch.
Tensor stack_rows(const std::vector<Tensor>& rows, std::span<const std::int64_t> indices) {
  const NoGradGuard no_grad;
  Shape sizes = rows[0].shape();
  sizes.insert(0, static_cast<std::int64_t>(rows.size()));
  const Tensor batch = empty(sizes, {.dtype = rows[0].dtype(), .device = rows[0].device()});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check<ShapeError>(
        rows[i].shape() == rows[0].shape() && rows[i].dtype() == rows[0].dtype(),
        "DataLoader: the samples of a batch must be of one kind, got {} {} (sample {}) and {} {} (sample {})",
        rows[0].dtype(), rows[0].shape(), indices[0], rows[i].dtype(), rows[i].shape(), indices[i]);
    batch[static_cast<std::int64_t>(i)].copy_(rows[i]);
  }
  return batch;
}

}  // namespace

Example Dataset::get_batch(std::span<const std::int64_t> indices) const {
  std::vector<Tensor> xs;
  std::vector<Tensor> ys;
  for (const std::int64_t index : indices) {
    try {
      Example example = get(index);
      xs.push_back(std::move(example.x));
      ys.push_back(std::move(example.y));
    } catch (Error& error) {
      error.add_context(fmt::format("while loading sample {}", index));
      throw;
    }
  }
  return {stack_rows(xs, indices), stack_rows(ys, indices)};
}

TensorDataset::TensorDataset(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {
  check<ShapeError>(x_.dim() > 0 && y_.dim() > 0 && x_.size(0) == y_.size(0),
                    "TensorDataset: x {} and y {} must have the same number of rows", x_.shape(), y_.shape());
}

Example TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
  const NoGradGuard no_grad;
  const Tensor rows = from_data(indices, {static_cast<std::int64_t>(indices.size())}, {.device = x_.device()});
  return {x_.index_select(0, rows), y_.index_select(0, rows.to(y_.device()))};
}

TensorDataset TensorDataset::subset(const Tensor& indices) const {
  const NoGradGuard no_grad;
  return {x_.index_select(0, indices), y_.index_select(0, indices)};
}

Split random_split(std::int64_t size, double test_fraction, std::uint64_t seed) {
  const auto test = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * test_fraction));
  check<ConfigError>(test_fraction > 0 && test_fraction < 1 && test >= 1 && test < size,
                     "random_split: {} of {} rows for the test part leave one of the parts empty", test_fraction, size);
  Generator generator(seed);
  const GeneratorScope scope(generator);
  const Tensor order = randperm(size);
  return {.train = order.narrow(0, test, size - test).contiguous(), .test = order.narrow(0, 0, test).contiguous()};
}

}  // namespace tandem::inline v0::data
