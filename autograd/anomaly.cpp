#include <tandem/autograd/anomaly_notes.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_pool.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

namespace {

std::mutex anomaly_mutex;
int note_takers = 0;  // AnomalyNotes that exist
std::string first_anomaly;

}  // namespace

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

void check_anomaly(const char* op, const Tensor& result) {
  if (core::thread_state().recorder != nullptr || all_finite(result)) {
    return;
  }
  const NoGradGuard no_grad;
  const std::vector<double> values = result.detach().to("cpu").to(DType::f64).to_vector<double>();
  std::size_t place = 0;
  while (std::isfinite(values[place])) {
    ++place;
  }
  const std::string text = fmt::format("{}the result {} has {} at element {}", core::message_prefix(op),
                                       to_string(result.shape()), values[place], place);
  {
    const std::lock_guard lock(anomaly_mutex);
    if (note_takers > 0) {
      first_anomaly = first_anomaly.empty() ? text : first_anomaly;
      return;
    }
  }
  fail<ValueError>(
      "{}, and all results before it in this step were finite: look at this layer's parameters and at the "
      "batch",
      text);
}

AnomalyNotes::AnomalyNotes() {
  const std::lock_guard lock(anomaly_mutex);
  ++note_takers;
  first_anomaly.clear();
}

AnomalyNotes::~AnomalyNotes() {
  const std::lock_guard lock(anomaly_mutex);
  --note_takers;
}

std::string AnomalyNotes::first() const {
  const std::lock_guard lock(anomaly_mutex);
  return first_anomaly;
}

}  // namespace tandem::inline v0::autograd
