#include <string>

#include <fmt/format.h>

#include "../report.h"
#include "../runtime.h"
#include "oracle.h"

namespace emulated_gpu::detail {

namespace {

const char* name_of(Access access) {
  switch (access) {
    case Access::kRead: return "a read";
    case Access::kWrite: return "a write";
    case Access::kStrongRead: return "an atomic or volatile read";
    default: return "an atomic or volatile write";
  }
}

bool is_strong(Access access) { return access == Access::kStrongRead || access == Access::kStrongWrite; }

std::string place_of(const Launch& launch, Who who) {
  const dim3& grid = launch.grid;
  const dim3& block = launch.block;
  const unsigned b = who.block();
  const unsigned t = who.thread();
  return fmt::format("block ({},{},{}), thread ({},{},{})", b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y,
                     t % block.x, t / block.x % block.y, t / block.x / block.y);
}

std::string remedy(Who one, Who other, bool strong) {
  if (strong) {
    return "make both accesses atomic, or order them like other accesses of different threads";
  }
  if (one.block() != other.block()) {
    return "nothing orders two blocks but __threadfence() before an atomic access of the first, and after one of the "
           "second that reads the same cell; or another launch";
  }
  if (one.thread() / 32 != other.thread() / 32) {
    return "__syncthreads() between the two accesses is missing";
  }
  return "__syncwarp() of both lanes, or __syncthreads(), between the two accesses is missing";
}

}  // namespace

void BlockRaces::report(const Place& place, const char* address, std::size_t size, Access access, const void* site,
                        const Conflict& conflict) const {
  const Launch& launch = *launch_.launch;
  const Who me(block_, self);
  const Who other = conflict.record.who;
  std::string memory = "shared memory";
  if (!place.shared) {
    const Device* device = Runtime::get().device_of(address);
    memory = device->arena.describe(address);
  } else if (place.shadow == &dynamic_) {
    memory = fmt::format("dynamic shared memory, byte {}", address - place.shadow->begin());
  }
  report_and_abort(
      fmt::format("data race in kernel {}, {} bytes of {}:\n  {} of {}\n    at {}\n  after {} of {}\n    at {}\n  {}",
                  launch.name, size, memory, name_of(access), place_of(launch, me), source_of(site),
                  name_of(conflict.access), place_of(launch, other), source_of(code_of(conflict.record)),
                  remedy(me, other, is_strong(access) || is_strong(conflict.access))));
}

}  // namespace emulated_gpu::detail
