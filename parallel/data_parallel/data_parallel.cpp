#include <tandem/parallel/data_parallel/data_parallel.h>

#include <numeric>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>

namespace tandem::inline v0::parallel::detail {

std::vector<Device> devices_or_all_gpus(std::vector<Device> devices) {
  if (devices.empty()) {
    for (int gpu = 0; gpu < cuda::device_count(); ++gpu) {
      devices.emplace_back(DeviceType::cuda, gpu);
    }
  }
  return devices;
}

void check_unwritten(bool unwritten) {
  check<ConfigError>(
      unwritten,
      "DataParallel: the module has changed an input in place. Each replica has a part of the batch, some "
      "parts are copies, and so only some rows of the caller's tensor have changed: let forward() make a "
      "new tensor, x = relu(x) instead of x.relu_()");
}

Tensor join_losses(const std::vector<Tensor>& losses, const std::vector<std::int64_t>& rows, Device target,
                   Reduction reduction) {
  check<ConfigError>(
      reduction != Reduction::none,
      "DataParallel::loss: the losses of the parts are joined by their mean or their sum; for one of each "
      "row call the loss on the gathered outputs");
  const auto total = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  Tensor sum;
  for (std::size_t k = 0; k < losses.size(); ++k) {
    check<ShapeError>(losses[k].dim() == 0, "DataParallel::loss: expected a scalar, got {} from replica {}",
                      losses[k].shape(), k);
    Tensor part = losses[k].to(target);
    if (reduction == Reduction::mean && losses.size() > 1) {
      part = part * (total > 0 ? static_cast<double>(rows[k]) / total : 1.0 / static_cast<double>(losses.size()));
    }
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace tandem::inline v0::parallel::detail
