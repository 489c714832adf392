#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: NCCL's communicator, which never blocks its callers.

namespace tandem::inline v0::parallel::nccl {

/// What NCCL says of a call that failed.
class NcclFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One rank's. NCCL is entered by one thread at a time; whatever takes long there is polled, or left to a thread of its
/// own. From any thread.
class Communicator {
 public:
  /// Throws what should end a wait.
  using Check = core::FunctionRef<void()>;
  using Calls = core::FunctionRef<ncclResult_t(const Functions& nccl, ncclComm_t comm)>;

  explicit Communicator(int gpu) : gpu_(gpu) {}
  /// abort(), unless it has left.
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns when all ranks have. Throws NcclFailure.
  void join(const ncclUniqueId& id, int rank, int size, Check check);
  /// Does `calls` as one group, and returns when NCCL has queued them. Throws NcclFailure; also after abort().
  void run(Calls calls, Check check);
  /// What went wrong in what is queued, if anything. Asks nothing while another thread is inside of NCCL.
  std::optional<std::string> trouble();

  /// Ends what is queued, on this rank. NCCL is given kPatience for it and then left alone, with a warning.
  void abort() noexcept;
  /// The good end, when nothing is queued any more. Other ranks are given kPatience to come, then it is abort().
  void leave() noexcept;

  static constexpr std::chrono::seconds kPatience{5};

 private:
  void settle(ncclResult_t result, Check check);
  ncclComm_t take() noexcept;

  std::timed_mutex mutex_;  // held by who is inside of NCCL
  ncclComm_t comm_ = nullptr;
  int gpu_;
};

}  // namespace tandem::inline v0::parallel::nccl
