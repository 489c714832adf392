#include <tandem/kernels/kernel_library.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tandem/core/check.h>
#if TANDEM_WITH_CUDNN
#include <tandem/kernels/cuda/cudnn/library.h>
#endif

namespace tandem::inline v0::cuda {

namespace {

constexpr int kUnset = -1;

struct Choice {
  const char* function;
  const char* variable;
  bool prefers_cudnn = false;
  std::atomic<int> value{kUnset};
};
constinit Choice softmax{"set_softmax_library", "TANDEM_CUDA_SOFTMAX"};
constinit Choice activation{"set_activation_library", "TANDEM_CUDA_ACTIVATION"};
constinit Choice convolution{"set_convolution_library", "TANDEM_CUDA_CONVOLUTION", true};

/// Says why cuDNN can't be used; empty if it can.
std::string cudnn_problem() {
#if TANDEM_WITH_CUDNN
  return kernels::gpu::cudnn::loaded().problem;
#else
  return "this build was made without cuDNN's headers (configure with -DCUDNN_ROOT=/path/to/cudnn)";
#endif
}

void choose(Choice& choice, KernelLibrary library, const char* by) {
  if (library == KernelLibrary::cudnn) {
    const std::string problem = cudnn_problem();
    check<ConfigError>(problem.empty(), "{}: there is no cuDNN to use: {}", by, problem);
  }
  choice.value.store(static_cast<int>(library), std::memory_order_relaxed);
}

KernelLibrary chosen(Choice& choice) {
  if (choice.value.load(std::memory_order_relaxed) == kUnset) [[unlikely]] {
    const char* text = std::getenv(choice.variable);
    const char* const otherwise = choice.prefers_cudnn && cudnn_problem().empty() ? "cudnn" : "own";
    const std::string_view name = text == nullptr || *text == '\0' ? otherwise : text;
    check<ConfigError>(name == "own" || name == "cudnn", "{}='{}': expected own or cudnn", choice.variable, name);
    choose(choice, name == "own" ? KernelLibrary::own : KernelLibrary::cudnn, choice.variable);
  }
  return static_cast<KernelLibrary>(choice.value.load(std::memory_order_relaxed));
}

}  // namespace

bool cudnn_available() noexcept { return cudnn_problem().empty(); }

void set_softmax_library(KernelLibrary library) { choose(softmax, library, softmax.function); }
KernelLibrary softmax_library() { return chosen(softmax); }
void set_activation_library(KernelLibrary library) { choose(activation, library, activation.function); }
KernelLibrary activation_library() { return chosen(activation); }
void set_convolution_library(KernelLibrary library) { choose(convolution, library, convolution.function); }
KernelLibrary convolution_library() { return chosen(convolution); }

}  // namespace tandem::inline v0::cuda
