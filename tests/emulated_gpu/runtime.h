#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "arena.h"

// The state behind the CUDA runtime's functions. One mutex guards all of it. Tasks run without holding the mutex, one
// at a time per device. Streams are lazy: queued work runs when a thread waits for it or queries it. A host function
// runs on a thread of its own and may take any time.

namespace emulated_gpu::detail {

struct Device;
struct Capture;

// One record of an event.
struct Marker {
  bool done = false;
  double seconds = 0;
  CUstream_st* stream = nullptr;
};

struct Task {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::string name;
  std::function<cudaError_t()> run;  // may be empty
  unsigned devices = 0;              // devices whose memory is open meanwhile, as bits
  bool locked = false;               // runs with the mutex held
  std::shared_ptr<Marker> wait;      // must be done first
  std::function<bool()> ready;       // must return true first; may be empty
  std::shared_ptr<Marker> record;    // is done afterwards
};

struct HostMemory {
  std::size_t size = 0;
  bool registered = false;  // made by cudaHostRegister()
};

}  // namespace emulated_gpu::detail

struct CUstream_st {
  emulated_gpu::detail::Device* device = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::deque<emulated_gpu::detail::Task> queue;
  bool running = false;  // an OS thread runs one of its tasks
  bool calling = false;  // that task is a host function
  int asked = 0;         // queries since work was last queued
  std::shared_ptr<emulated_gpu::detail::Capture> capture;
  std::vector<std::size_t> tail;  // in a capture: dependencies of the next node
};

struct CUevent_st {
  emulated_gpu::detail::Device* device = nullptr;
  unsigned flags = 0;
  std::shared_ptr<emulated_gpu::detail::Marker> marker;  // of the last record; nullptr before the first
  std::weak_ptr<emulated_gpu::detail::Capture> capture;  // capture of the last record
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
  std::set<int> peers;  // devices that it can access
  bool busy = false;    // runs a task
  CUmemPoolHandle_st default_pool;
  std::vector<std::unique_ptr<CUstream_st>> streams;  // in order of creation

  Device(int i, std::size_t memory) : index(i), arena(i, memory) { default_pool.device = this; }
  // The device itself and its peers, as bits like Task::devices.
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
  std::map<const void*, int> max_dynamic_shared;  // of kernels that requested more
  std::set<std::shared_ptr<Capture>> captures;
  cudaError_t sticky = cudaSuccess;
  cudaError_t planned_error = cudaSuccess;
  std::string planned_kernel;
  std::string hungry_call;  // it needs that many free bytes
  std::size_t hungry_bytes = 0;
  std::optional<std::vector<std::string>> kernel_log;

  Device& current();
  // Whether the call cannot have the memory that a test lets it need.
  bool lacks_memory(const char* call);
  // The device whose memory contains the address, or nullptr for host memory.
  Device* device_of(const void* address);
  // Returns cudaSuccess if `stream` is one of ours. The default stream is refused.
  cudaError_t check(cudaStream_t stream);
  cudaError_t check(cudaEvent_t event);

  // Queues a task, or adds it to the stream's capture.
  cudaError_t submit(Lock& lock, CUstream_st& stream, Task task);
  // Runs one task, and twice as many with each further query. Programs thus see streams that are not done, and one that
  // polls and sleeps still finishes soon.
  void go_on(Lock& lock, CUstream_st& stream);
  void finish(Lock& lock, CUstream_st& stream);
  void finish(Lock& lock, Device& device);
  void finish(Lock& lock, const std::shared_ptr<Marker>& marker);
  // Runs one task of the stream, or of one that it waits for. Returns false if a host function has to end first, or
  // another device has to arrive.
  bool run_front(Lock& lock, CUstream_st& stream);
  // Runs the task immediately, outside of all streams.
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
  // Runs tasks, or waits for other threads that run them, until done().
  template <class Done>
  void run_until(Lock& lock, CUstream_st& stream, const Done& done);
};

// Whether the caller is inside a task, which must not call the CUDA runtime.
bool in_task();
// Whether the process was forked after the first call: CUDA does not work in such a child.
bool in_forked_child();
// Stores an error for cudaGetLastError() and returns it.
cudaError_t remember(cudaError_t error);
// The calling thread's current device.
inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;

// The frame of every API function. Calls `function(lock)` with the mutex held, unless an earlier failure is sticky.
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

// Reports SIGSEGV in device memory and in guard pages with a message. Call it before the first arena is used.
void install_fault_handler();

// The readable name of a function of this process. Needs the mutex held.
const std::string& symbol_name(const void* function);

// File and line of a return address, also of functions inlined there; without debug information, the place in the file
// of the program.
std::string source_of(const void* code);

}  // namespace emulated_gpu::detail
