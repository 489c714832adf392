#include <tandem/core/progress_page.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/span.h>

namespace tandem::inline v0::core {

namespace {

constexpr off_t kBytes = 4096;
static_assert(std::atomic<std::int64_t>::is_always_lock_free && sizeof(ProgressPage) <= kBytes);

ProgressPage* map(int descriptor) noexcept {
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<ProgressPage*>(memory);
}

// The variable may be a leftover, and its number then that of any file.
bool is_page(int descriptor) noexcept {
  struct stat status{};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  return ::fstat(descriptor, &status) == 0 && status.st_size == kBytes &&
         (::fcntl(descriptor, F_GET_SEALS) & kSeals) == kSeals;
}

constexpr std::array<std::string_view, kPhases> kPlaces{"waiting for data",
                                                        "scattering a batch",
                                                        "copying parameters to replicas",
                                                        "in its forward pass",
                                                        "gathering outputs",
                                                        "in its backward pass",
                                                        "waiting for gradients",
                                                        "in a collective",
                                                        "in an optimizer's step",
                                                        "in a captured step",
                                                        "waiting for a stage of its pipeline"};

}  // namespace

std::atomic<ProgressPage*> progress_page{nullptr};

namespace {

constinit thread_local bool has_joined = false;

}  // namespace

ProgressPage* page_of_this_thread() noexcept {
  return has_joined ? progress_page.load(std::memory_order_relaxed) : nullptr;
}

void join_progress_page() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* text = std::getenv(kProgressVariable);
    int descriptor = -1;
    if (text == nullptr || std::from_chars(text, text + std::strlen(text), descriptor).ec != std::errc() ||
        !is_page(descriptor)) {
      return;
    }
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // programs that this one starts are not the rank
    progress_page = map(descriptor);
    if (progress_page != nullptr) {
      has_joined = true;
      detail::span_listeners.fetch_add(1);
    }
  });
}

SharedProgress::SharedProgress() noexcept {
  descriptor_ = ::memfd_create("tandem-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor_ >= 0 && ::ftruncate(descriptor_, kBytes) == 0 &&
      ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {  // a read never fails
    page_ = map(descriptor_);
  }
  if (page_ != nullptr) {
    new (page_) ProgressPage;
  } else if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

SharedProgress::~SharedProgress() {
  if (page_ != nullptr) {
    ::munmap(page_, kBytes);
    ::close(descriptor_);
  }
}

std::string SharedProgress::text() const {
  if (page_ == nullptr) {
    return {};
  }
  const std::int64_t step = page_->run_step;
  const std::int64_t updates = page_->updates;
  const std::int32_t phase = page_->phase;
  std::string text = step >= 0     ? fmt::format(" after step {}", step)
                     : updates > 0 ? fmt::format(" after {} update{}", updates, updates == 1 ? "" : "s")
                                   : "";
  if (phase >= 0 && phase < static_cast<std::int32_t>(kPlaces.size())) {  // the process may have written anything
    text += fmt::format(", {}", kPlaces[static_cast<std::size_t>(phase)]);
  }
  return text;
}

}  // namespace tandem::inline v0::core
