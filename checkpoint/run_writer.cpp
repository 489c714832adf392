#include <tandem/checkpoint/run_writer.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include <tandem/core/dispatch.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::checkpoint {

bool all_finite(const Tensor& tensor) {
  if (!is_floating_point(tensor.dtype())) {
    return true;
  }
  const NoGradGuard no_grad;
  const Tensor dense = tensor.detach().to("cpu").contiguous();
  std::atomic<bool> is_finite{true};
  core::dispatch_floating(dense.dtype(), "all_finite", [&]<class T>() {
    constexpr std::int64_t kGrain = 65'536;
    const T* values = static_cast<const T*>(dense.raw().data());
    core::parallel_for(dense.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      int bad = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(values[i]);
        bad |= static_cast<int>(!(value - value == 0));  // infinity - infinity is NaN
      }
      if (bad != 0) {
        is_finite.store(false, std::memory_order_relaxed);
      }
    });
  });
  return is_finite;
}

std::string first_nonfinite(const nn::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && !all_finite(tensor)) {
      return name;
    }
  }
  return {};
}

void RunWriter::start(std::function<void()> work, bool in_background) {
  const auto run = [this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  };
  if (in_background) {
    thread_ = core::start_thread<std::jthread>("the writer of checkpoints", run);
  } else {
    run();
  }
}

std::exception_ptr RunWriter::wait() {
  thread_.reset();  // joins
  return std::exchange(error_, nullptr);
}

}  // namespace tandem::inline v0::checkpoint
