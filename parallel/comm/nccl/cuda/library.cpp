#include <tandem/parallel/comm/nccl/cuda/library.h>

#include <dlfcn.h>

#include <cstdlib>

#include <fmt/format.h>

namespace tandem::inline v0::parallel::nccl {

namespace {

constexpr int kOldest = 21400;

void judge_version(Library& library) {
  int version = 0;
  library.functions.ncclGetVersion(&version);
  if (version < kOldest || version / 10000 != NCCL_MAJOR) {
    library.problem = fmt::format("NCCL has version {}.{}.{}, and 2.14 or a newer 2.x is needed", version / 10000,
                                  version / 100 % 100, version % 100);
  }
}

[[maybe_unused]] Library load(const char* file) {
  Library library;
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.problem = dlerror();
    return library;
  }
#define TANDEM_NCCL_FIND(name)                                                                       \
  library.functions.name = reinterpret_cast<decltype(library.functions.name)>(dlsym(handle, #name)); \
  if (library.functions.name == nullptr && library.problem.empty()) {                                \
    library.problem = fmt::format("{} has no function {}", file, #name);                             \
  }
  TANDEM_NCCL_FUNCTIONS(TANDEM_NCCL_FIND)
#undef TANDEM_NCCL_FIND
  if (library.problem.empty()) {
    judge_version(library);
  }
  return library;
}

[[maybe_unused]] Library find() {
  if (const char* file = std::getenv("TANDEM_NCCL_LIBRARY"); file != nullptr && *file != '\0') {
    return load(file);
  }
  Library library = load("libnccl.so.2");
#ifdef TANDEM_NCCL_FILE
  if (!library.problem.empty()) {
    if (Library other = load(TANDEM_NCCL_FILE); other.problem.empty()) {
      return other;
    }
  }
#endif
  return library;
}

}  // namespace

const Library& loaded() {
#if TANDEM_NCCL_LINKED
  static const auto* library = [] {
    auto* linked = new Library;
#define TANDEM_NCCL_TAKE(name) linked->functions.name = &::name;
    TANDEM_NCCL_FUNCTIONS(TANDEM_NCCL_TAKE)
#undef TANDEM_NCCL_TAKE
    judge_version(*linked);
    return linked;
  }();
#else
  static const auto* library = new Library(find());  // outlives every thread
#endif
  return *library;
}

}  // namespace tandem::inline v0::parallel::nccl
