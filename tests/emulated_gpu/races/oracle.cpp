#include "oracle.h"

#include <link.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "../device_limits.h"
#include "../emulated_gpu.h"
#include "../report.h"
#include "../runtime.h"

namespace emulated_gpu {

namespace detail {

constinit thread_local BlockRaces* block_races = nullptr;

namespace {

std::atomic<bool>& enabled() {
  static std::atomic<bool> value = [] {
    const char* text = std::getenv("EMULATED_GPU_RACES");
    const bool wanted = text != nullptr && std::strcmp(text, "0") != 0;
    if (wanted && EMULATED_GPU_INSTRUMENTED == 0) {
      report_and_abort("EMULATED_GPU_RACES: this build cannot find races; use GCC, without sanitizers");
    }
    return wanted;
  }();
  return value;
}

// The thread-local variables of this program that belong to the calling OS thread: static shared memory is among them.
struct ThreadLocals {
  char* begin = nullptr;
  std::size_t size = 0;
};

int find_thread_locals(dl_phdr_info* info, size_t, void* data) {
  const auto* known = reinterpret_cast<const char*>(&block_races);  // one of them
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    auto* begin = static_cast<char*>(info->dlpi_tls_data);
    if (segment.p_type == PT_TLS && begin != nullptr && known >= begin && known < begin + segment.p_memsz) {
      *static_cast<ThreadLocals*>(data) = {begin, segment.p_memsz};
      return 1;
    }
  }
  return 0;
}

ThreadLocals thread_locals() {
  ThreadLocals found;
  dl_iterate_phdr(&find_thread_locals, &found);
  return found;
}

std::vector<std::unique_ptr<Shadow>>& device_shadows() {
  static auto& shadows = *[] {
    auto* made = new std::vector<std::unique_ptr<Shadow>>;
    for (const auto& device : Runtime::get().devices) {
      made->push_back(std::make_unique<Shadow>(device->arena.size()));
      made->back()->cover(device->arena.base(), device->arena.size());
    }
    return made;
  }();
  return shadows;
}

// All code of a program is within 2 GiB of this function.
const char* anchor() { return reinterpret_cast<const char*>(&find_thread_locals); }

std::int32_t site_of(const void* code) { return static_cast<std::int32_t>(static_cast<const char*>(code) - anchor()); }

std::uint32_t next_stamp() {
  static std::uint32_t last = 0;  // used by one OS thread at a time
  return ++last;
}

}  // namespace

const char* code_of(const Record& record) { return anchor() + record.site; }

bool finds_races() { return enabled(); }

void LaunchRaces::begin(const Launch& of) {
  launch = &of;
  stamp = next_stamp();
  fenced = false;
  views.clear();
}

BlockRaces::BlockRaces(LaunchRaces& launch)
    : launch_(launch), devices_(device_shadows()), static_(thread_locals().size), dynamic_(limits::kSharedOptIn) {
  static_.cover(thread_locals().begin, thread_locals().size);
}

void BlockRaces::begin(const void* dynamic) {
  dynamic_.cover(dynamic, launch_.launch->dynamic_shared);
  block_races = this;
}

void BlockRaces::begin_block(std::uint64_t block, unsigned threads) {
  block_ = block;
  stamp_ = next_stamp();
  views_.clear();
  clock.begin(Who(block, 0).block(), threads);
}

void BlockRaces::end() { block_races = nullptr; }

BlockRaces::Place BlockRaces::find(const void* address) {
  for (const auto& shadow : devices_) {
    if (shadow->contains(address)) {
      return {shadow.get(), false};
    }
  }
  for (Shadow* shadow : {&static_, &dynamic_}) {
    if (shadow->contains(address)) {
      return {shadow, true};
    }
  }
  return {};
}

void BlockRaces::maybe_interrupt() {
  if (seed() == 0 || --until_interrupt_ != 0) {
    return;
  }
  random_ = random_ * 1664525 + 1013904223;
  until_interrupt_ = 1 + (random_ >> 16) % 256;
  interrupt();
}

void BlockRaces::access(const void* address, std::size_t size, Access access, const void* site) {
  const Place place = find(address);
  if (place.shadow == nullptr) {
    return;
  }
  maybe_interrupt();
  const Record record{Who(block_, self), clock.time(self), site_of(site)};
  const std::uint32_t stamp = place.shared ? stamp_ : launch_.stamp;
  const Conflict conflict = place.shadow->touch(address, size, stamp, access, record, clock);
  if (conflict.record.time != 0) {
    report(place, static_cast<const char*>(address), size, access, site, conflict);
  }
}

void BlockRaces::strong_access(const void* address, std::size_t size, bool loads, bool stores, const void* site) {
  const Place place = find(address);
  if (place.shadow == nullptr) {
    return;
  }
  access(address, size, stores ? Access::kStrongWrite : Access::kStrongRead, site);
  if (!launch_.fenced) {
    return;
  }
  View& view = place.shared ? views_[address] : launch_.views[address];
  const Scope scope = place.shared ? Scope::kBlock : Scope::kDevice;
  if (loads) {
    clock.load(self, view, scope);
  }
  if (stores) {
    clock.store(self, view, scope, loads);
  }
}

void BlockRaces::fence(Scope scope) {
  launch_.fenced = true;
  clock.fence(self, scope);
}

void fence(bool only_block) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (block_races != nullptr) {
    block_races->fence(only_block ? Scope::kBlock : Scope::kDevice);
  }
}

}  // namespace detail

void find_races(bool on) { detail::enabled() = on; }

}  // namespace emulated_gpu
