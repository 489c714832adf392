#include <tandem/checkpoint/run_writer.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/span.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>

namespace tandem::inline v0::checkpoint {

void RunWriter::start(std::function<void()> work, bool in_background) {
  const auto run = [this, work = std::move(work)] {
    const SpanScope traced({.name = "write checkpoint"});
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  };
  if (in_background) {
    try {
      thread_ = core::start_thread<std::jthread>("the writer of checkpoints", [run, rank = core::thread_state().rank] {
        const core::ThreadStateScope scope({.device = {}, .rank = rank});
        core::set_thread_purpose("checkpoints");
        run();
      });
      return;
    } catch (const Error& error) {
      core::warn_once(fmt::format("a checkpoint is written while the training waits: {}", error.what()));
    }
  }
  run();
}

std::exception_ptr RunWriter::wait() {
  thread_.reset();  // joins
  return std::exchange(error_, nullptr);
}

}  // namespace tandem::inline v0::checkpoint
