#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "capture.h"
#include "runtime.h"

// Decides when and where queued work runs.

namespace emulated_gpu::detail {

namespace {

constexpr std::size_t kMaxQueued = 1024;

thread_local bool inside_task = false;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

bool in_task() { return inside_task; }

template <class Done>
void Runtime::run_until(Lock& lock, CUstream_st& stream, const Done& done) {
  while (!done()) {
    if (!run_front(lock, stream)) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));  // changes that Task::ready reads are not signalled
    }
  }
}

cudaError_t Runtime::submit(Lock& lock, CUstream_st& stream, Task task) {
  if (stream.capture != nullptr) {
    return add_node(stream, std::move(task));
  }
  if (sticky != cudaSuccess) {
    return sticky;
  }
  stream.queue.push_back(std::move(task));
  stream.asked = 0;
  run_until(lock, stream, [&] { return stream.queue.size() <= kMaxQueued; });
  return cudaSuccess;
}

bool Runtime::run_front(Lock& lock, CUstream_st& stream) {
  Device& device = *stream.device;
  changed_.wait(lock, [&device] { return !device.busy; });
  if (stream.calling) {
    return false;
  }
  if (stream.queue.empty()) {
    return true;
  }
  if (const auto& marker = stream.queue.front().wait; marker != nullptr && !marker->done) {
    return run_front(lock, *marker->stream);
  }
  if (const auto& ready = stream.queue.front().ready; ready && !ready()) {
    return false;
  }
  Task task = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.running = true;
  if (task.type == cudaGraphNodeTypeHost) {
    start_call(stream, std::move(task));
    return false;
  }
  device.busy = true;
  const cudaError_t error = execute(lock, task);
  device.busy = false;
  complete(stream, task, error);
  return true;
}

void Runtime::start_call(CUstream_st& stream, Task task) {
  stream.calling = true;
  std::thread([this, &stream, task = std::move(task)] {
    inside_task = true;
    task.run();
    const Lock lock(mutex);
    stream.calling = false;
    complete(stream, task, cudaSuccess);
  }).detach();
}

void Runtime::complete(CUstream_st& stream, const Task& task, cudaError_t error) {
  stream.running = false;
  if (task.record != nullptr) {
    task.record->done = true;
    task.record->seconds = now();
  }
  if (error != cudaSuccess) {
    sticky = error;
    drop_tasks();
  }
  changed_.notify_all();
}

cudaError_t Runtime::execute(Lock& lock, Task& task) {
  if (!task.run) {
    return cudaSuccess;
  }
  if (task.type == cudaGraphNodeTypeKernel && kernel_log) {
    kernel_log->push_back(task.name);
  }
  if (task.type == cudaGraphNodeTypeKernel && planned_error != cudaSuccess &&
      task.name.find(planned_kernel) != std::string::npos) {
    return std::exchange(planned_error, cudaSuccess);
  }
  const auto for_devices = [&](void (Arena::*change)()) {
    for (const auto& device : devices) {
      if ((task.devices >> device->index & 1U) != 0) {
        (device->arena.*change)();
      }
    }
  };
  for_devices(&Arena::open);
  if (!task.locked) {
    lock.unlock();
  }
  const bool outer = std::exchange(inside_task, true);
  const cudaError_t error = task.run();
  inside_task = outer;
  if (!task.locked) {
    lock.lock();
  }
  for_devices(&Arena::close);
  return error;
}

cudaError_t Runtime::run_now(Lock& lock, Task task) {
  const cudaError_t error = execute(lock, task);
  if (error != cudaSuccess) {
    sticky = error;
    drop_tasks();
  }
  return error;
}

void Runtime::go_on(Lock& lock, CUstream_st& stream) {
  constexpr int kMostDoublings = 10;
  const int tasks = 1 << std::min(stream.asked++, kMostDoublings);
  for (int i = 0; i < tasks && !stream.queue.empty() && run_front(lock, stream); ++i) {
  }
}

void Runtime::finish(Lock& lock, CUstream_st& stream) {
  run_until(lock, stream, [&] { return stream.queue.empty() && !stream.running; });
}

void Runtime::finish(Lock& lock, Device& device) {
  for (;;) {
    std::vector<CUstream_st*> pending;
    for (const auto& stream : device.streams) {
      if (!stream->queue.empty() || stream->running) {
        pending.push_back(stream.get());
      }
    }
    if (pending.empty()) {
      return;
    }
    if (!run_front(lock, *pending[random(pending.size())])) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));  // another stream may proceed meanwhile
    }
  }
}

void Runtime::finish(Lock& lock, const std::shared_ptr<Marker>& marker) {
  run_until(lock, *marker->stream, [&] { return marker->done; });
}

void Runtime::drop_tasks() {
  for (const auto& device : devices) {
    for (const auto& stream : device->streams) {
      for (const Task& task : stream->queue) {
        if (task.record != nullptr) {
          task.record->done = true;
        }
      }
      stream->queue.clear();
    }
  }
}

}  // namespace emulated_gpu::detail
