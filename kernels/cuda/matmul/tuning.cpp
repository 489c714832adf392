#include <tandem/kernels/matmul_tuning.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/build.h>
#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/file.h>
#include <tandem/kernels/cuda/matmul/plan_file.h>
#include <tandem/kernels/cuda/matmul/plan_store.h>

#if TANDEM_WITH_CUDA
#include <cublasLt.h>
#endif

namespace tandem::inline v0::cuda {

namespace {

using kernels::gpu::PlanRecord;
using kernels::gpu::PlanStore;

enum class Tuning : int { unknown, off, on };
constinit std::atomic<Tuning> chosen{Tuning::unknown};

bool read_environment() {
  const char* text = std::getenv("TANDEM_CUDA_TUNING");
  const std::string_view value = text == nullptr ? "0" : text;
  check<ConfigError>(value == "0" || value == "1", "TANDEM_CUDA_TUNING='{}': expected 0 or 1", std::string(value));
  return value == "1";
}

// In a build without CUDA there is no GPU whose plans this could let in.
std::size_t library_version() {
#if TANDEM_WITH_CUDA
  return cublasLtGetVersion();
#else
  return 0;
#endif
}

}  // namespace

void set_matmul_tuning(bool on) noexcept { chosen.store(on ? Tuning::on : Tuning::off, std::memory_order_relaxed); }

bool matmul_tuning() {
  Tuning tuning = chosen.load(std::memory_order_relaxed);
  if (tuning == Tuning::unknown) [[unlikely]] {
    const Tuning found = read_environment() ? Tuning::on : Tuning::off;
    tuning = chosen.compare_exchange_strong(tuning, found, std::memory_order_relaxed) ? found : tuning;
  }
  return tuning == Tuning::on;
}

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

}  // namespace tandem::inline v0::cuda
