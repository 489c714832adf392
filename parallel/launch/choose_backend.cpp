#include <tandem/parallel/launch/choose_backend.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/gloo/gloo_backend.h>
#include <tandem/parallel/comm/local_backend.h>
#include <tandem/parallel/comm/nccl/nccl.h>
#include <tandem/parallel/comm/staged.h>

namespace tandem::inline v0::parallel {

namespace {

// Whether NCCL is what a user means who names nothing: each rank is on a GPU of its own, as far as this one can see.
bool suits_nccl(const WorldInfo& world) {
  return core::thread_state().device.type == DeviceType::cuda && world.local_world_size <= cuda::device_count() &&
         why_nccl_is_unavailable().empty();
}

}  // namespace

std::unique_ptr<Backend> choose_backend(std::string_view name, const WorldInfo& world,
                                        const std::shared_ptr<Store>& store, const std::string& prefix,
                                        const std::shared_ptr<Alarm>& alarm,
                                        std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  check<ConfigError>(
      name.empty() || name == "gloo" || name == "nccl",
      "init_process_group: no backend is called \"{}\"; expected \"gloo\", \"nccl\", or none for the best", name);
  if (name.empty() && world.world_size == 1) {
    return std::make_unique<LocalBackend>(
        std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), std::vector<int>{0}), 0);
  }
  const auto left = [&] {
    return std::max(std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()), milliseconds(1));
  };
  std::unique_ptr<Backend> gloo = gloo_backend({.store = store,
                                                .prefix = prefix + "gloo",
                                                .rank = world.rank,
                                                .size = world.world_size,
                                                .store_host = world.address,
                                                .alarm = alarm,
                                                .setup_timeout = left()});
  if (name == "nccl" || (name.empty() && suits_nccl(world))) {
    return nccl_backend(std::move(gloo), core::thread_state().device, {.timeout = left()});
  }
  return cuda::is_available() ? staged_backend(std::move(gloo)) : std::move(gloo);
}

}  // namespace tandem::inline v0::parallel
