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

namespace cuda {
class StreamScope;
}
namespace parallel {
struct RankContext;
}

namespace core {

struct ModuleScope;
class Frame;

/// What memory is asked for, in the account of a device.
enum class MemoryUse : std::uint8_t {
  other,  // activations, inputs, results
  parameters,
  gradients,
  optimizer,
};
/// How many there are.
inline constexpr std::size_t kMemoryUses = 4;

/// Everything a thread carries that changes what an op does or says. Plain values and borrowed pointers: capturing is
/// a copy, restoring is ThreadStateScope, and whatever runs work on another thread (pool, backward helpers, loader)
/// does exactly that. A new per-thread setting belongs here and nowhere else.
struct ThreadState {
  Device device;                                // where factories place new tensors
  const cuda::StreamScope* stream = nullptr;    // innermost choice of a GPU's stream
  MemoryUse memory_use = MemoryUse::other;      // what new memory counts as
  bool grad_enabled = true;                     // off under NoGradGuard
  Generator* generator = nullptr;               // null: the process's default generator
  const ModuleScope* scope = nullptr;           // innermost module being called: the path in messages
  const Frame* frame = nullptr;                 // innermost replica frame: what parameter slots mean here
  kernels::LaunchObserver* observer = nullptr;  // sees every kernel launch: recording, spans
  detail::StepRecorder* recorder = nullptr;     // sees what else a captured step must know, while it is recorded
  const parallel::RankContext* rank = nullptr;  // the rank that it works for, where ranks are threads
};

/// The calling thread's state. Exported, so that a program and a shared libtandem have one and the same.
TANDEM_API inline ThreadState& thread_state() noexcept {
  constinit static thread_local ThreadState state;
  return state;
}

/// Makes `state` current for a scope, then puts back what was there.
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

/// New tensors of this thread are placed on `device` for a scope, where nothing else is said. Throws DeviceError when
/// there is no such device.
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
  const void* tree = nullptr;  // identity of the tree that it is in
};

/// How a message begins: "Linear 'encoder.0': ", "Mlp: matmul: ", or "matmul: " outside any module. With an empty `op`
/// the module alone.
TANDEM_API std::string message_prefix(const char* op);
/// The same as an argument of check(): made only if the check fails.
struct MessagePrefix {
  const char* op;  // name of the op, may be empty
};

}  // namespace core
}  // namespace tandem::inline v0
