#pragma once

#include <cstddef>
#include <type_traits>

#include <tandem/build.h>
#include <tandem/core/device.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/kernel.h>

// Starts kernels, on the device that their context names.

namespace tandem::inline v0::kernels {

/// True if equal launches have equal bytes, because the padding between the fields of a record's arguments is zero.
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

/// Sees every launch before it runs, on each thread whose ThreadState holds the observer.
class LaunchObserver {
 public:
  virtual void on_launch(Context& context, const LaunchRecord& record) = 0;

 protected:
  ~LaunchObserver() = default;
};

/// A kernel that says `static constexpr bool kCpuOnly = true;`, as one of a program that never uses a GPU may.
template <class Kernel>
concept CpuOnly = requires { requires Kernel::kCpuOnly; };

/// Throws DeviceError for a kernel without a CUDA half.
[[noreturn]] TANDEM_API void refuse_gpu(const char* name, Device device);

/// Runs `kernel` on the context's device. A build with CUDA requires a `run` for each backend.
template <class Kernel>
void run_on_device(Context& context, const Kernel& kernel) {
#if TANDEM_WITH_CUDA
  if constexpr (CpuOnly<Kernel>) {
    if (context.device.type == DeviceType::cuda) {
      refuse_gpu(Kernel::kName, context.device);
    }
  } else {
    static_assert(
        requires { run(OnCuda{}, context, kernel); },
        "this kernel has no CUDA half: declare `void run(OnCuda, Context& context, const Kernel& kernel);` "
        "beside run(OnCpu, ...) and define it in a .cu file (ours is kernels/cuda/<family>.cu), or, in a program of "
        "your own, say `static constexpr bool kCpuOnly = true;` in the kernel");
    if (context.device.type == DeviceType::cuda) {
      return run(OnCuda{}, context, kernel);
    }
  }
#endif
  run(OnCpu{}, context, kernel);
}

/// The `replay` of a kernel's records, by which the kernel is recognised: kName may be that of another one.
template <class Kernel>
void replay(Context& context, const void* args) {
  run_on_device(context, *static_cast<const Kernel*>(args));
}

/// Launches a kernel; nothing else in the library runs one.
template <class Kernel>
void launch(Context& context, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "a kernel's arguments are plain data");
  if (LaunchObserver* observer = core::thread_state().observer; observer != nullptr) [[unlikely]] {
    Kernel args_of_record = kernel;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&args_of_record);
#endif
    observer->on_launch(context, {Kernel::kName, &args_of_record, sizeof(Kernel), &replay<Kernel>});
  }
  run_on_device(context, kernel);
}

}  // namespace tandem::inline v0::kernels
