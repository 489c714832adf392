#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: NCCL's communicator, without calls that block.

namespace tandem::inline v0::parallel::nccl {

/// Rank 0's id for a new communicator, on every rank of `base`. The ranks have met already, so they exchange the id by
/// an all-gather of `base`, with its deadline and its errors. Throws ConfigError on all ranks if one has no NCCL, or if
/// two share a GPU, which NCCL refuses.
ncclUniqueId agree_on_id(Backend& base, Device gpu, const CallTime& time);

/// A failed call, with NCCL's error text.
class NcclFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The communicator of one rank. Only one thread at a time is inside NCCL. Anything that takes long there is polled or
/// left to a thread of its own. May be used from any thread.
class Communicator {
 public:
  /// Throws an error that should end a wait.
  using Check = core::FunctionRef<void()>;
  using Calls = core::FunctionRef<ncclResult_t(const Functions& nccl, ncclComm_t comm)>;

  explicit Communicator(int gpu) : gpu_(gpu) {}
  /// Calls abort(), unless the communicator has left.
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns when all ranks have joined. Throws NcclFailure.
  void join(const ncclUniqueId& id, int rank, int size, Check check);
  /// Runs `calls` as one NCCL group and returns when NCCL has queued them. Throws NcclFailure, also after abort().
  void run(Calls calls, Check check);
  /// The failure of a queued call, if any. Reports nothing while another thread is inside NCCL.
  std::optional<std::string> trouble();

  /// Ends queued work on this rank. If NCCL takes longer than kPatience, its thread is abandoned with a warning.
  void abort() noexcept;
  /// The regular end, called when no work is queued. If other ranks do not leave within kPatience, aborts instead.
  void leave() noexcept;

  static constexpr std::chrono::seconds kPatience{5};

 private:
  void settle(ncclResult_t result, Check check);
  ncclComm_t take() noexcept;

  std::timed_mutex mutex_;  // held while inside NCCL
  ncclComm_t comm_ = nullptr;
  int gpu_;
};

}  // namespace tandem::inline v0::parallel::nccl
