#include <tandem/kernels/cuda/cudnn/library.h>

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>

#include <tandem/core/check.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

bool found_no_memory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

// All layouts that tandem uses are fixed within one major version.
void judge_version(Library& library) {
  const std::size_t version = library.functions.cudnnGetVersion();
  if (version / 10000 != CUDNN_MAJOR) {
    library.problem = fmt::format("libcudnn has version {}, and this build needs {}.x", version, CUDNN_MAJOR);
  }
}

[[maybe_unused]] Library find() {
  if (const char* file = std::getenv("TANDEM_CUDNN_LIBRARY"); file != nullptr && *file != '\0') {
    return load(file);
  }
  Library library = load("libcudnn.so.9");
#ifdef TANDEM_CUDNN_FILE
  if (!library.problem.empty()) {
    if (Library other = load(TANDEM_CUDNN_FILE); other.problem.empty()) {
      return other;
    }
  }
#endif
  return library;
}

}  // namespace

Library load(const char* file) {
  Library library;
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.problem = dlerror();
    return library;
  }
#define TANDEM_CUDNN_FIND(name)                                                                      \
  library.functions.name = reinterpret_cast<decltype(library.functions.name)>(dlsym(handle, #name)); \
  if (library.functions.name == nullptr && library.problem.empty()) {                                \
    library.problem = fmt::format("{} has no function {}", file, #name);                             \
  }
  TANDEM_CUDNN_FUNCTIONS(TANDEM_CUDNN_FIND)
#undef TANDEM_CUDNN_FIND
  if (library.problem.empty()) {
    judge_version(library);
  }
  return library;
}

const Library& loaded() {
#if TANDEM_CUDNN_LINKED
  static const auto* library = [] {
    auto* linked = new Library;
#define TANDEM_CUDNN_TAKE(name) linked->functions.name = &::name;
    TANDEM_CUDNN_FUNCTIONS(TANDEM_CUDNN_TAKE)
#undef TANDEM_CUDNN_TAKE
    judge_version(*linked);
    return linked;
  }();
#else
  static const auto* library = new Library(find());  // outlives every thread
#endif
  return *library;
}

void throw_status(cudnnStatus_t status, const char* call) {
  std::array<char, 256> more{};
  api().cudnnGetLastErrorString(more.data(), more.size());
  const std::string failure = fmt::format("cuDNN: {} from {}{}{}", api().cudnnGetErrorString(status), call,
                                          more[0] == '\0' ? "" : ": ", more.data());
  if (found_no_memory(status)) {
    cuda::fail_without_room(failure);
  }
  fail<DeviceError>("{}", failure);
}

Session::Session(const cuda::Gpu& gpu) {
  const cuda::GpuScope scope(gpu.index);
  require(cuda::with_room(gpu.index, [&] { return api().cudnnCreate(&handle); }, found_no_memory), "cudnnCreate");
  require(api().cudnnCreateTensorDescriptor(&tensor), "cudnnCreateTensorDescriptor");
}

Session* Session::of(const Queue& queue) {
  static constinit cuda::PerGpu<Session, cuda::LockPlace::library_made> sessions;
  const int gpu = queue.gpu().index;
  if (Session* made = sessions.find(gpu); made != nullptr || queue.is_capturing()) {
    return made;
  }
  return &sessions.get(gpu, [&] { return std::make_unique<Session>(queue.gpu()); });
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
