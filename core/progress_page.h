#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <tandem/core/export.h>

// Internal: how far a process is, in memory that it shares with its launcher. The launcher reads it after a kill, too.

namespace tandem::inline v0::core {

/// Written by the process that trains, with plain stores.
struct ProgressPage {
  std::atomic<std::int64_t> run_step{-1};  // steps of a checkpoint::Run; -1: there is none
  std::atomic<std::int64_t> updates{0};    // Optimizer::step() calls
  std::atomic<std::int32_t> phase{-1};     // the open Phase; -1: none
};

/// The name of the environment variable with the number of the page's descriptor.
inline constexpr const char* kProgressVariable = "TANDEM_PROGRESS_FD";

/// This process's page, or null if it has none or has not joined it.
TANDEM_API extern std::atomic<ProgressPage*> progress_page;
/// The page, on the thread that joined it, which alone notes phases; null on other threads.
TANDEM_API ProgressPage* page_of_this_thread() noexcept;

/// Maps the page that a launcher has handed to this process; without one, does nothing. Each Optimizer and Run calls
/// this.
TANDEM_API void join_progress_page() noexcept;

/// Counts an Optimizer::step().
inline void note_update() noexcept {
  if (ProgressPage* page = progress_page.load(std::memory_order_relaxed); page != nullptr) {
    page->updates.store(page->updates.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

/// The launcher's side: a page for one child, which inherits descriptor(). Without memory for it there is none.
class TANDEM_API SharedProgress {
 public:
  SharedProgress() noexcept;
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  /// -1: there is no page.
  int descriptor() const noexcept { return descriptor_; }
  /// " after step 406, in its backward pass", or an empty text.
  std::string text() const;

 private:
  int descriptor_ = -1;
  ProgressPage* page_ = nullptr;
};

}  // namespace tandem::inline v0::core
