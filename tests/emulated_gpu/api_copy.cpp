#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "capture.h"
#include "runtime.h"

// Functions that copy and fill memory.

using emulated_gpu::detail::call;
using emulated_gpu::detail::Device;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;
using emulated_gpu::detail::Task;

namespace {

// One side of a copy.
struct Side {
  enum class Where { kDevice, kPinned, kPageable, kInvalid };
  Where where = Where::kPageable;
  unsigned devices = 0;
};

Side look_at(Runtime& runtime, const void* memory, std::size_t size) {
  if (Device* device = runtime.device_of(memory); device != nullptr) {
    const bool valid = device->arena.find(memory, size) != nullptr;
    return {valid ? Side::Where::kDevice : Side::Where::kInvalid, 1U << device->index};
  }
  const auto* byte = static_cast<const char*>(memory);
  const auto next = runtime.host_memory.upper_bound(byte);
  if (next != runtime.host_memory.begin()) {
    const auto& [begin, pinned] = *std::prev(next);
    if (static_cast<std::size_t>(byte - begin) + size <= pinned.size) {
      return {Side::Where::kPinned, 0};
    }
  }
  return {memory == nullptr ? Side::Where::kInvalid : Side::Where::kPageable, 0};
}

bool fits(const Side& side, bool on_device) {
  return side.where != Side::Where::kInvalid && (side.where == Side::Where::kDevice) == on_device;
}

// Returns cudaSuccess if memory on these sides can be copied as `kind` says.
cudaError_t check_kind(const Side& to, const Side& from, cudaMemcpyKind kind) {
  const bool invalid = to.where == Side::Where::kInvalid || from.where == Side::Where::kInvalid;
  bool fit = false;
  switch (kind) {
    case cudaMemcpyDefault: fit = true; break;
    case cudaMemcpyHostToHost: fit = fits(to, false) && fits(from, false); break;
    case cudaMemcpyHostToDevice: fit = fits(to, true) && fits(from, false); break;
    case cudaMemcpyDeviceToHost: fit = fits(to, false) && fits(from, true); break;
    case cudaMemcpyDeviceToDevice: fit = fits(to, true) && fits(from, true); break;
    default: return cudaErrorInvalidMemcpyDirection;
  }
  return fit && !invalid ? cudaSuccess : cudaErrorInvalidValue;
}

struct Rows {
  char* to;
  std::size_t to_pitch;
  const char* from;
  std::size_t from_pitch;
  std::size_t width;
  std::size_t height;

  std::size_t to_size() const { return (height - 1) * to_pitch + width; }
  std::size_t from_size() const { return (height - 1) * from_pitch + width; }
  void copy() const {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(to + row * to_pitch, from + row * from_pitch, width);
    }
  }
};

cudaError_t copy_async(Rows rows, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (rows.width == 0 || rows.height == 0) {
      return cudaSuccess;
    }
    const Side to = look_at(runtime, rows.to, rows.to_size());
    const Side from = look_at(runtime, rows.from, rows.from_size());
    if (const cudaError_t error = check_kind(to, from, kind); error != cudaSuccess) {
      return error;
    }
    Task task;
    task.type = cudaGraphNodeTypeMemcpy;
    task.name = "a copy";
    task.devices = to.devices | from.devices;
    const bool captured = stream->capture != nullptr;
    // CUDA promises nothing about the moment at which it reads pageable memory: here it is the last possible one.
    task.run = [rows] {
      rows.copy();
      return cudaSuccess;
    };
    if (const cudaError_t error = runtime.submit(lock, *stream, std::move(task)); error != cudaSuccess) {
      return error;
    }
    const bool waits = to.where == Side::Where::kPageable ||
                       (from.where == Side::Where::kPageable && to.where != Side::Where::kDevice);
    if (waits && !captured) {
      runtime.finish(lock, *stream);
    }
    return cudaSuccess;
  });
}

// The default stream waits for all streams that were made without cudaStreamNonBlocking.
void finish_blocking_streams(Runtime& runtime, Lock& lock) {
  std::vector<CUstream_st*> streams;
  for (const auto& stream : runtime.current().streams) {
    if ((stream->flags & cudaStreamNonBlocking) == 0) {
      streams.push_back(stream.get());
    }
  }
  for (CUstream_st* stream : streams) {
    runtime.finish(lock, *stream);
  }
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_async({static_cast<char*>(to), size, static_cast<const char*>(from), size, size, 1}, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (to_pitch < width || from_pitch < width) {
    return emulated_gpu::detail::remember(cudaErrorInvalidPitchValue);
  }
  return copy_async({static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width, height}, kind,
                    stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    if (size == 0) {
      return cudaSuccess;
    }
    const Side target = look_at(runtime, to, size);
    const Side source = look_at(runtime, from, size);
    if (const cudaError_t error = check_kind(target, source, kind); error != cudaSuccess) {
      return error;
    }
    finish_blocking_streams(runtime, lock);
    Task task;
    task.devices = target.devices | source.devices;
    task.run = [=] {
      std::memmove(to, from, size);
      return cudaSuccess;
    };
    return runtime.run_now(lock, std::move(task));
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t size, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (size == 0) {
      return cudaSuccess;
    }
    const Side side = look_at(runtime, memory, size);
    if (side.where != Side::Where::kDevice) {
      return cudaErrorInvalidValue;
    }
    Task task;
    task.type = cudaGraphNodeTypeMemset;
    task.name = "a memset";
    task.devices = side.devices;
    task.run = [=] {
      std::memset(memory, value, size);
      return cudaSuccess;
    };
    return runtime.submit(lock, *stream, std::move(task));
  });
}

cudaError_t cudaMemset(void* memory, int value, size_t size) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    const Side side = look_at(runtime, memory, size);
    if (size == 0 || side.where != Side::Where::kDevice) {
      return size == 0 ? cudaSuccess : cudaErrorInvalidValue;
    }
    finish_blocking_streams(runtime, lock);
    Task task;
    task.devices = side.devices;
    task.run = [=] {
      std::memset(memory, value, size);
      return cudaSuccess;
    };
    return runtime.run_now(lock, std::move(task));
  });
}
