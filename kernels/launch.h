#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <tandem/build.h>
#include <tandem/core/device.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/scratch.h>

// The seam between tensors and devices. A kernel is a plain struct: its fields are the arguments (memory is handed in,
// nothing is owned), its `run` overloads, one per backend, are found by the tag. Kernels never allocate from the
// system after warm-up, never synchronise, never check shapes, and don't know Tensor.

namespace tandem::inline v0::kernels {

struct OnCpu {};
struct OnCuda {};

/// Whether a result replaces what is at its destination or is added to it (beta 0 or 1).
enum class Accumulate : unsigned char { no, yes };

/// What kernels of a GPU keep for a thread, known to them alone.
struct GpuState {
  virtual ~GpuState() = default;
};
struct StepSlots;

/// What a kernel runs with, one per thread and device.
struct Context {
  Device device;
  ScratchArena scratch;
  bool deterministic = true;
  std::shared_ptr<GpuState> gpu_state{};
  StepSlots* step_slots = nullptr;  // while a step is captured into a graph of a GPU
};

/// The calling thread's context for `device`.
TANDEM_API Context& context_for(Device device);

/// Whether equal launches have equal bytes: bytes between the fields of a record's arguments are zero.
#if __has_builtin(__builtin_clear_padding)
inline constexpr bool kPaddingIsZero = true;
#else
inline constexpr bool kPaddingIsZero = false;
#endif

/// One launch as data: `replay(context, args)` runs it again.
struct LaunchRecord {
  const char* name;
  const void* args;  // valid during the callback; copy args_bytes to keep it (kernels are trivially copyable)
  std::size_t args_bytes;
  void (*replay)(Context&, const void* args);
};

/// Sees every launch of the threads on whose ThreadState it is set, before it runs.
class LaunchObserver {
 public:
  virtual void on_launch(Context& context, const LaunchRecord& record) = 0;

 protected:
  ~LaunchObserver() = default;
};

/// `kernel` on the context's device.
template <class Kernel>
void run_on_device(Context& context, const Kernel& kernel) {
#if TANDEM_WITH_CUDA
  if constexpr (requires { run(OnCuda{}, context, kernel); }) {
    if (context.device.type == DeviceType::cuda) {
      run(OnCuda{}, context, kernel);
      return;
    }
  }
#endif
  run(OnCpu{}, context, kernel);
}

/// The only way in which a kernel is run.
template <class Kernel>
void launch(Context& context, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "a kernel's arguments are plain data");
  if (LaunchObserver* observer = core::thread_state().observer; observer != nullptr) [[unlikely]] {
    Kernel args_of_record = kernel;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&args_of_record);
#endif
    observer->on_launch(context, {Kernel::kName, &args_of_record, sizeof(Kernel), [](Context& c, const void* args) {
                                    run_on_device(c, *static_cast<const Kernel*>(args));
                                  }});
  }
  run_on_device(context, kernel);
}

}  // namespace tandem::inline v0::kernels
