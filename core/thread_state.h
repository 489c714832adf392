#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

namespace tandem::inline v0 {

class Generator;

namespace kernels {
class LaunchObserver;
}
namespace detail {
class StepRecorder;
}

namespace autograd {
class Autocast;
}
namespace cuda {
class StreamScope;
}
namespace parallel {
struct RankContext;
}

namespace core {

struct ModuleScope;
class Frame;

/// The purpose of an allocation, in the memory statistics of a device.
enum class MemoryUse : std::uint8_t {
  other,  // activations, inputs, results
  parameters,
  gradients,
  optimizer,
};
/// Number of memory uses.
inline constexpr std::size_t kMemoryUses = 4;

/// Everything a thread carries that changes an op's behaviour or messages. All members are plain values or borrowed
/// pointers: capturing the state is a copy, and ThreadStateScope restores it. All code that moves work to another
/// thread (pool, backward helpers, loader) carries the state this way. A new per-thread setting belongs here and
/// nowhere else.
struct ThreadState {
  Device device;                                 // where factories place new tensors
  const cuda::StreamScope* stream = nullptr;     // innermost choice of a GPU stream
  MemoryUse memory_use = MemoryUse::other;       // category of new memory
  bool grad_enabled = true;                      // false under NoGradGuard
  bool detects_anomaly = false;                  // true under DetectAnomaly
  const autograd::Autocast* autocast = nullptr;  // the innermost AutocastScope; null: none, or not enabled
  Generator* generator = nullptr;                // null: the process's default generator
  const ModuleScope* scope = nullptr;            // innermost module being called: the path in messages
  const Frame* frame = nullptr;                  // innermost replica frame: resolves parameter slots on this thread
  kernels::LaunchObserver* observer = nullptr;   // observes every kernel launch, for recording and tracing
  detail::StepRecorder* recorder = nullptr;      // observes further facts while a captured step is recorded
  const parallel::RankContext* rank = nullptr;   // the rank this thread works for, if ranks are threads
};

/// The calling thread's state. The function is exported so that a program and a shared libtandem use a single state.
TANDEM_API inline ThreadState& thread_state() noexcept {
  constinit static thread_local ThreadState state;
  return state;
}

/// Makes `state` current for a scope, then restores the previous state.
class ThreadStateScope {
 public:
  [[nodiscard]] explicit ThreadStateScope(const ThreadState& state) noexcept : saved_(thread_state()) {
    thread_state() = state;
  }
  ~ThreadStateScope() { thread_state() = saved_; }
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  ThreadState saved_;
};

/// Counts the memory that this thread allocates in a scope as `use`.
class MemoryUseScope {
 public:
  [[nodiscard]] explicit MemoryUseScope(MemoryUse use) noexcept : saved_(thread_state().memory_use) {
    thread_state().memory_use = use;
  }
  ~MemoryUseScope() { thread_state().memory_use = saved_; }
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  MemoryUse saved_;
};

/// Places this thread's new tensors on `device` for a scope, unless a call names a device. Throws DeviceError if the
/// device does not exist.
class DeviceScope {
 public:
  [[nodiscard]] explicit DeviceScope(Device device) : saved_(thread_state().device) {
    require_available(device);
    thread_state().device = device;
  }
  ~DeviceScope() { thread_state().device = saved_; }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device saved_;
};

/// One open module call: a link on the caller's stack.
struct ModuleScope {
  const char* path;            // from the root, "encoder.0"; empty for a root
  const char* type;            // "Linear", "Mlp"
  const ModuleScope* parent;   // the call around this one
  const void* tree = nullptr;  // identity of the module tree that contains the module
};

/// The beginning of a message: "Linear 'encoder.0': ", "Mlp: matmul: ", or "matmul: " outside any module. An empty `op`
/// gives only the module.
TANDEM_API std::string message_prefix(const char* op);
/// message_prefix() as an argument of check(): the text is made only if the check fails.
struct MessagePrefix {
  const char* op;  // name of the op, may be empty
};

}  // namespace core
}  // namespace tandem::inline v0
