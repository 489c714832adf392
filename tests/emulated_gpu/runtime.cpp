#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <pthread.h>

#include <fmt/format.h>

#include "block.h"
#include "capture.h"
#include "report.h"

namespace emulated_gpu::detail {

namespace {

bool forked = false;

std::size_t memory_size() {
  const char* text = std::getenv("EMULATED_GPU_MEMORY");
  if (text == nullptr) {
    return std::size_t{1} << 30;
  }
  char* end = nullptr;
  std::size_t size = std::strtoull(text, &end, 10);
  switch (*end) {
    case 'k':
    case 'K':
      size <<= 10;
      ++end;
      break;
    case 'm':
    case 'M':
      size <<= 20;
      ++end;
      break;
    case 'g':
    case 'G':
      size <<= 30;
      ++end;
      break;
    default: break;
  }
  if (size == 0 || *end != '\0') {
    report_and_abort(
        fmt::format("EMULATED_GPU_MEMORY='{}': expected a number of bytes, with k, M or G behind it", text));
  }
  return size;
}

// How many of `count` GPUs a program sees: those listed in CUDA_VISIBLE_DEVICES, up to the first invalid number.
int visible_devices(int count) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    return count;
  }
  int visible = 0;
  char* end = nullptr;
  for (;; list = end + 1, ++visible) {
    const long index = std::strtol(list, &end, 10);
    if (end == list || index < 0 || index >= count) {
      return visible;
    }
    if (*end != ',') {
      return visible + 1;
    }
  }
}

int device_count() {
  constexpr int kMaxDevices = 16;
  const char* text = std::getenv("EMULATED_GPU_COUNT");
  if (text == nullptr) {
    return visible_devices(2);
  }
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || count < 0 || count > kMaxDevices) {
    report_and_abort(fmt::format("EMULATED_GPU_COUNT='{}': expected a number up to {}", text, kMaxDevices));
  }
  return visible_devices(static_cast<int>(count));
}

}  // namespace

unsigned Device::reach() const {
  unsigned mask = 1U << index;
  for (const int peer : peers) {
    mask |= 1U << peer;
  }
  return mask;
}

bool in_forked_child() { return forked; }

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;  // never destroyed: threads and static objects may end later
  return *runtime;
}

Runtime::Runtime() : random_(static_cast<std::minstd_rand::result_type>(seed() + 1)) {
  const std::size_t memory = memory_size();
  const int count = device_count();
  for (int i = 0; i < count; ++i) {
    devices.push_back(std::make_unique<Device>(i, memory));
  }
  install_fault_handler();
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

Device& Runtime::current() { return *devices.at(static_cast<std::size_t>(current_device)); }

bool Runtime::lacks_memory(const char* call) {
  const Arena& arena = current().arena;
  return hungry_bytes > 0 && hungry_call == call && arena.size() - arena.reserved() < hungry_bytes;
}

Device* Runtime::device_of(const void* address) {
  for (const auto& device : devices) {
    if (device->arena.contains(address)) {
      return device.get();
    }
  }
  return nullptr;
}

cudaError_t Runtime::check(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    fmt::print(stderr, "emulated GPU: the default stream was used; create one\n");
    return cudaErrorNotSupported;
  }
  for (const auto& device : devices) {
    for (const auto& known : device->streams) {
      if (known.get() == stream) {
        return cudaSuccess;
      }
    }
  }
  return cudaErrorInvalidResourceHandle;
}

cudaError_t Runtime::check(cudaEvent_t event) {
  const bool known = std::any_of(events.begin(), events.end(), [event](const auto& e) { return e.get() == event; });
  return known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

std::size_t Runtime::random(std::size_t count) { return seed() == 0 ? 0 : random_() % count; }

}  // namespace emulated_gpu::detail
