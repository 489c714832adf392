#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/build.h>
#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/file.h>
#include <tandem/kernels/cuda/matmul/plan_store.h>

#if TANDEM_WITH_CUDA
#include <cublasLt.h>
#endif

namespace tandem::inline v0 {

namespace {

constexpr std::array<std::string_view, 3> kNames{"highest", "high", "medium"};
constinit std::atomic<std::size_t> chosen{0};

}  // namespace

void set_float32_matmul_precision(std::string_view precision) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == precision) {
      chosen.store(i, std::memory_order_relaxed);
      return;
    }
  }
  fail<ConfigError>("set_float32_matmul_precision: '{}' is not known; choose 'highest', 'high' or 'medium'", precision);
}

std::string_view get_float32_matmul_precision() noexcept { return kNames[chosen.load(std::memory_order_relaxed)]; }

bool kernels::allows_bf16_products() noexcept { return chosen.load(std::memory_order_relaxed) == 2; }

namespace cuda {

namespace {

using kernels::gpu::PlanRecord;
using kernels::gpu::PlanStore;

// A setting: the value that was set last, or that of the environment if nothing was set before the first use.
class Switch {
 public:
  constexpr Switch(const char* variable, const char* standard) noexcept : variable_(variable), standard_(standard) {}

  void set(bool on) noexcept { state_.store(on ? State::on : State::off, std::memory_order_relaxed); }
  bool get() {
    State state = state_.load(std::memory_order_relaxed);
    if (state == State::unknown) [[unlikely]] {
      const State found = read_environment() ? State::on : State::off;
      state = state_.compare_exchange_strong(state, found, std::memory_order_relaxed) ? found : state;
    }
    return state == State::on;
  }

 private:
  enum class State : int { unknown, off, on };

  bool read_environment() const {
    const char* text = std::getenv(variable_);
    const std::string_view value = text == nullptr ? standard_ : text;
    check<ConfigError>(value == "0" || value == "1", "{}='{}': expected 0 or 1", variable_, std::string(value));
    return value == "1";
  }

  const char* variable_;
  const char* standard_;
  std::atomic<State> state_{State::unknown};
};

constinit Switch tuning("TANDEM_CUDA_TUNING", "0");
constinit Switch backward("TANDEM_CUDA_FUSED_BACKWARD", "1");
constinit Switch small("TANDEM_CUDA_SMALL_PRODUCTS", "1");

// In a build without CUDA there is no GPU whose plans this could let in.
std::size_t library_version() {
#if TANDEM_WITH_CUDA
  return cublasLtGetVersion();
#else
  return 0;
#endif
}

}  // namespace

void set_kernel_tuning(bool on) noexcept { tuning.set(on); }
bool kernel_tuning() { return tuning.get(); }

void set_fused_backward(bool on) noexcept { backward.set(on); }
bool fused_backward() { return backward.get(); }

void set_small_products(bool on) noexcept { small.set(on); }
bool small_products() { return small.get(); }

std::size_t save_matmul_plans(const std::string& path) {
  const std::vector<PlanRecord> records = PlanStore::instance().all();
  core::replace_file(path, {kernels::gpu::write_plans(records)});
  return records.size();
}

LoadedMatmulPlans load_matmul_plans(const std::string& path) {
  std::vector<PlanRecord> records = kernels::gpu::read_plan_file(path);
  std::vector<std::string> gpus;
  for (int index = 0; index < device_count(); ++index) {
    gpus.push_back(device_name(index));
  }
  const std::size_t version = library_version();
  const std::size_t skipped = std::erase_if(records, [&](const PlanRecord& record) {
    return record.version != version || std::find(gpus.begin(), gpus.end(), record.gpu) == gpus.end();
  });
  const std::size_t loaded = records.size();
  PlanStore::instance().add_loaded(std::move(records));
  return {.loaded = loaded, .skipped = skipped};
}

}  // namespace cuda

namespace kernels {

bool fuses_backward(Device device) { return device.type == DeviceType::cuda && cuda::fused_backward(); }

bool writes_relu_bits(Device device, DType dtype) {
  const bool fast = dtype == DType::bf16 || dtype == DType::f16 ||
                    (dtype == DType::f32 && get_float32_matmul_precision() != "highest");
  return fast && fuses_backward(device);
}

}  // namespace kernels

}  // namespace tandem::inline v0
