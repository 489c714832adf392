#include "ranks.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/job/elastic.h>
#include <tandem/parallel/job/spawn.h>
#include <tandem/parallel/rendezvous/environment.h>

namespace example {

using namespace tandem;

std::vector<Device> devices_of_ranks(const CommonOptions& options, int ranks) {
  if (!options.devices.empty()) {
    check<ConfigError>(options.devices.size() == static_cast<std::size_t>(ranks),
                       "--devices: {} devices for {} ranks on this host; expected one for each", options.devices.size(),
                       ranks);
    return {options.devices.begin(), options.devices.end()};
  }
  const Device given(options.device);
  const bool has_number = options.device.find(':') != std::string::npos;
  const int count = given.type == DeviceType::cuda ? std::max(cuda::device_count(), 1) : cpu_device_count();
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    devices.push_back(has_number ? given : Device(given.type, rank % count));  // ranks may share a device
  }
  return devices;
}

void as_ranks(const CommonOptions& options, const std::function<void(const Rank&)>& body) {
  if (options.parallel != "ddp") {
    return body({.device = Device(options.device)});
  }
  if (options.ranks > 0) {
    const std::vector<Device> devices = devices_of_ranks(options, options.ranks);
    const auto as_thread = [&](parallel::ProcessGroup& group) {
      body({.rank = group.rank(), .size = group.size(), .device = devices[static_cast<std::size_t>(group.rank())]});
    };
    return parallel::spawn(options.ranks, as_thread, {.devices = devices});
  }
  const parallel::WorldInfo world = parallel::read_world();
  const Device device = devices_of_ranks(options, world.local_world_size)[static_cast<std::size_t>(world.local_rank)];
  const core::DeviceScope here(device);
  parallel::run_elastic(
      [&](parallel::ProcessGroup& group) { body({.rank = group.rank(), .size = group.size(), .device = device}); });
}

}  // namespace example
