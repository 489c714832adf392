#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/build.h>
#include <tandem/core/cuda.h>
#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/error.h>
#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>
#include <tandem/parallel/job/process_group_guard.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "tandem/commands.h"

namespace tool {

namespace {

using namespace tandem;

struct Product {
  std::string f32;    // also for 16-bit types, which are widened to f32
  std::string other;  // f64
};

// Follows the choice in kernels/cpu/matmul.cpp.
Product matrix_product() {
  const std::string isa = core::to_string(core::isa());
  const std::string eigen = fmt::format("Eigen, {}", isa);
  return {core::isa() == core::Isa::baseline ? eigen : fmt::format("own, {}", isa), eigen};
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  std::ranges::transform(core::available_isas(), std::back_inserter(names),
                         [](core::Isa isa) { return core::to_string(isa); });
  return names;
}

std::vector<std::string> dtypes() {
  std::vector<std::string> names;
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    names.emplace_back(name(dtype));
  }
  return names;
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::vector<std::string> cuda_devices() {
  const int count = cuda::device_count();
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const cuda::DeviceProperties gpu = cuda::device_properties(i);
    names.push_back(fmt::format("cuda:{} {}, {:.1f} GiB", i, gpu.name, static_cast<double>(gpu.total_memory) / kGiB));
  }
  return names;
}

// The pairs of GPUs whose tensors move from one to the other directly.
std::vector<std::string> cuda_peers() {
  std::vector<std::string> pairs;
  for (int i = 0; i < cuda::device_count(); ++i) {
    for (int j = i + 1; j < cuda::device_count(); ++j) {
      if (cuda::can_device_access_peer(i, j) && cuda::can_device_access_peer(j, i)) {
        pairs.push_back(fmt::format("cuda:{}-cuda:{}", i, j));
      }
    }
  }
  return pairs;
}

// The options of this build.
std::vector<std::string> build_options() {
  std::vector<std::string> options{TANDEM_BUILD_KIND};
  options.emplace_back(TANDEM_WITH_CUDA != 0 ? "CUDA" : "no CUDA");
  const std::string sanitizer = TANDEM_BUILD_SANITIZER;
  if (!sanitizer.empty()) {
    options.push_back(fmt::format("sanitizer {}", sanitizer));
  }
  return options;
}

std::vector<std::string> usable_backends() {
  std::vector<std::string> names;
  for (const parallel::BackendInfo& backend : parallel::backends()) {
    if (backend.usable) {
      names.push_back(backend.name);
    }
  }
  return names;
}

// The reason why no GPU can be used; empty if one can.
std::string why_no_cuda() {
  try {
    if (cuda::is_available()) {
      require_available(Device("cuda"));
    } else {
      cuda::device_name(0);
    }
  } catch (const DeviceError& e) {
    const std::string text = e.what();  // the text is "device 'cuda:0': this build ..."
    return text.substr(text.find(": ") + 2);
  }
  return {};
}

std::int64_t memory_bytes(int pages) { return std::int64_t{::sysconf(pages)} * ::sysconf(_SC_PAGESIZE); }

std::int64_t cores() { return ::sysconf(_SC_NPROCESSORS_ONLN); }

void print_json() {
  const Product product = matrix_product();
  cli::print_result_json({{"version", TANDEM_VERSION},
                          {"compiler", TANDEM_COMPILER},
                          {"build", build_options()},
                          {"cpu", cli::cpu_model()},
                          {"cores", cores()},
                          {"threads", std::int64_t{num_threads()}},
                          {"isa", core::to_string(core::isa())},
                          {"isas", available_isas()},
                          {"cpu_devices", std::int64_t{cpu_device_count()}},
                          {"cuda_devices", cuda_devices()},
                          {"cuda_peers", cuda_peers()},
                          {"why_no_cuda", why_no_cuda()},
                          {"backends", usable_backends()},
                          {"matmul_f32", product.f32},
                          {"matmul_f64", product.other},
                          {"dtypes", dtypes()},
                          {"memory_bytes", memory_bytes(_SC_PHYS_PAGES)},
                          {"free_memory_bytes", memory_bytes(_SC_AVPHYS_PAGES)}});
}

void print_line(const char* name, const std::string& text) { fmt::print("{:<10}{}\n", name, text); }

void print_table() {
  const Product product = matrix_product();
  print_line("tandem", fmt::format("{}, {}", TANDEM_VERSION, TANDEM_COMPILER));
  print_line("build", fmt::format("{}", fmt::join(build_options(), ", ")));
  print_line("cpu", fmt::format("{}; {} cores, {} threads used (TANDEM_NUM_THREADS)", cli::cpu_model(), cores(),
                                num_threads()));
  print_line("isa", fmt::format("{}, of {} (TANDEM_CPU_ISA)", core::to_string(core::isa()),
                                fmt::join(available_isas(), ", ")));
  print_line("matmul", fmt::format("f32, f16, bf16: {}; f64: {}", product.f32, product.other));
  print_line("devices", fmt::format("cpu:0 to cpu:{}, logical (TANDEM_CPU_DEVICES)", cpu_device_count() - 1));
  for (const std::string& gpu : cuda_devices()) {
    print_line("", gpu);
  }
  if (cuda::device_count() > 1) {
    const std::vector<std::string> pairs = cuda_peers();
    print_line("peers", pairs.empty() ? "none: copies between GPUs go through the host's memory"
                                      : fmt::format("{} copy directly", fmt::join(pairs, ", ")));
  }
  if (const std::string why = why_no_cuda(); !why.empty()) {
    print_line("cuda", fmt::format("{}{}", cuda::is_available() ? "" : "none: ", why));
  }
  const char* name = "backends";
  for (const parallel::BackendInfo& backend : parallel::backends()) {
    print_line(name, fmt::format("{}{}: {}", backend.name, backend.usable ? "" : ", not usable", backend.why));
    name = "";
  }
  print_line("dtypes", fmt::format("{}", fmt::join(dtypes(), ", ")));
  print_line("memory",
             fmt::format("{:.1f} GiB, {:.1f} GiB free", static_cast<double>(memory_bytes(_SC_PHYS_PAGES)) / kGiB,
                         static_cast<double>(memory_bytes(_SC_AVPHYS_PAGES)) / kGiB));
}

}  // namespace

int info(int argc, const char* const* argv) {
  bool json = false;
  CLI::App app("Prints what this build of tandem can do on this machine.", "tandem info");
  app.add_flag("--json", json, "Print one JSON object");
  app.footer(
      "Examples:\n"
      "  tandem info\n"
      "  TANDEM_CPU_ISA=avx2 tandem info      with a lower instruction set\n"
      "  tandem info --json | jq .threads");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  json ? print_json() : print_table();
  return 0;
}

}  // namespace tool
