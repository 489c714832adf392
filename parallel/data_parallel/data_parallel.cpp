#include <tandem/parallel/data_parallel/data_parallel.h>

#include <numeric>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/storage.h>

namespace tandem::inline v0::parallel::detail {

std::vector<Device> devices_or_all_gpus(std::vector<Device> devices) {
  if (devices.empty()) {
    for (int gpu = 0; gpu < cuda::device_count(); ++gpu) {
      devices.emplace_back(DeviceType::cuda, gpu);
    }
  }
  return devices;
}

void make_read_only(Tensor& input) {
  if (input.defined() && !input.raw().storage->is_alias()) {
    if (input.dim() == 0) {
      input = input.unsqueeze(0).squeeze(0);  // so far it is the caller's own
    }
    tandem::detail::View& view = input.get()->view;
    view.storage = tandem::detail::Storage::alias(view.storage, view.device());
  }
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
