#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "arena.h"

// The state behind the CUDA runtime's functions. One mutex guards all of it; tasks run without it, one at a time on
// each device. Streams are lazy: what is queued on them runs when somebody waits for it or asks whether it is done. A
// host function has a thread of its own, and may take for ever.

namespace emulated_gpu::detail {

struct Device;
struct Capture;

// What an event stands for, from one record on.
struct Marker {
  bool done = false;
  double seconds = 0;
  CUstream_st* stream = nullptr;
};

struct Task {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::string name;
  std::function<cudaError_t()> run;  // may be empty
  unsigned devices = 0;              // whose memory is open meanwhile: a bit for each
  bool locked = false;               // runs with the mutex held
  std::shared_ptr<Marker> wait;      // must be done first
  std::function<bool()> ready;       // must say so first; may be empty
  std::shared_ptr<Marker> record;    // is done then
};

struct HostMemory {
  std::size_t size = 0;
  bool registered = false;  // by cudaHostRegister()
};

}  // namespace emulated_gpu::detail

struct CUstream_st {
  emulated_gpu::detail::Device* device = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::deque<emulated_gpu::detail::Task> queue;
  bool running = false;  // a task of it, on some OS thread
  bool calling = false;  // that is a host function
  int asked = 0;         // queries since something was queued
  std::shared_ptr<emulated_gpu::detail::Capture> capture;
  std::vector<std::size_t> tail;  // of its capture: what the next node depends on
};

struct CUevent_st {
  emulated_gpu::detail::Device* device = nullptr;
  unsigned flags = 0;
  std::shared_ptr<emulated_gpu::detail::Marker> marker;  // of the last record; none yet: nullptr
  std::weak_ptr<emulated_gpu::detail::Capture> capture;  // in which it was recorded last
  std::vector<std::size_t> tail;
  bool captured = false;
};

struct CUmemPoolHandle_st {
  emulated_gpu::detail::Device* device = nullptr;
  std::size_t used = 0;
  std::size_t high = 0;
  std::map<int, std::uint64_t> attributes;
};

namespace emulated_gpu::detail {

struct Device {
  int index;
  Arena arena;
  std::set<int> peers;  // that it has access to
  bool busy = false;    // a task runs
  CUmemPoolHandle_st default_pool;
  std::vector<std::unique_ptr<CUstream_st>> streams;  // in the order of their creation

  Device(int i, std::size_t memory) : index(i), arena(i, memory) { default_pool.device = this; }
  // Itself and its peers, as Task::devices.
  unsigned reach() const;
};

using Lock = std::unique_lock<std::mutex>;

class Runtime {
 public:
  static Runtime& get();

  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  std::set<std::unique_ptr<CUevent_st>, std::less<>> events;
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> pools;
  std::map<const char*, HostMemory> host_memory;
  std::map<const void*, int> max_dynamic_shared;  // of kernels that asked for more
  std::set<std::shared_ptr<Capture>> captures;
  cudaError_t sticky = cudaSuccess;
  cudaError_t planned_error = cudaSuccess;
  std::string planned_kernel;

  Device& current();
  // The device whose memory an address is, nullptr for host memory.
  Device* device_of(const void* address);
  // cudaSuccess when `stream` is one of ours, and not the default stream, which is forbidden.
  cudaError_t check(cudaStream_t stream);
  cudaError_t check(cudaEvent_t event);

  // Queues a task, or gives it to the stream's capture.
  cudaError_t submit(Lock& lock, CUstream_st& stream, Task task);
  // One task, and with each further query twice as many: so the program sees that streams are not done, and one that
  // polls and naps does not take for ever.
  void go_on(Lock& lock, CUstream_st& stream);
  void finish(Lock& lock, CUstream_st& stream);
  void finish(Lock& lock, Device& device);
  void finish(Lock& lock, const std::shared_ptr<Marker>& marker);
  // One task of the stream, or of one that it waits for; false where a host function has to end first, or another
  // device to come.
  bool run_front(Lock& lock, CUstream_st& stream);
  // Right now, outside of all streams.
  cudaError_t run_now(Lock& lock, Task task);
  void drop_tasks();
  std::size_t random(std::size_t count);

 private:
  std::condition_variable changed_;
  std::minstd_rand random_;

  Runtime();
  cudaError_t execute(Lock& lock, Task& task);
  void start_call(CUstream_st& stream, Task task);
  void complete(CUstream_st& stream, const Task& task, cudaError_t error);
  // Runs tasks, or waits for others that do, until done().
  template <class Done>
  void run_until(Lock& lock, CUstream_st& stream, const Done& done);
};

// Whether the caller is in a task: it must not call the CUDA runtime.
bool in_task();
// Whether the process was forked after the first call: CUDA does not work in it.
bool in_forked_child();
// Remembers an error for cudaGetLastError(), and gives it back.
cudaError_t remember(cudaError_t error);
// The calling thread's current device.
inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;

// The frame of every function of the API: `function(lock)` with the mutex held, unless everything failed before.
template <class Function>
cudaError_t call(const Function& function) {
  if (in_task()) {
    return remember(cudaErrorNotPermitted);
  }
  if (in_forked_child()) {
    return remember(cudaErrorInitializationError);
  }
  Runtime& runtime = Runtime::get();
  Lock lock(runtime.mutex);
  if (runtime.devices.empty()) {
    return remember(cudaErrorNoDevice);
  }
  if (runtime.sticky != cudaSuccess) {
    return remember(runtime.sticky);
  }
  cudaError_t error = function(runtime, lock);
  if (runtime.sticky != cudaSuccess) {
    error = runtime.sticky;
  }
  return remember(error);
}

// Handles SIGSEGV in device memory and in guard pages with a message; to be called before the first arena is used.
void install_fault_handler();

// The readable name of a function of this process. With the mutex held.
const std::string& symbol_name(const void* function);

}  // namespace emulated_gpu::detail
