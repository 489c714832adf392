#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: NCCL's communicator, without calls that block.

namespace tandem::inline v0::parallel::nccl {

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

  Communicator(int gpu, int rank, int size) : gpu_(gpu), rank_(rank), size_(size) {}
  /// Calls abort(), unless the communicator has left.
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Joins the communicator that `id` names. Returns when all ranks have joined. Throws NcclFailure.
  void join(const ncclUniqueId& id, Check check);
  /// Queues the call, of any kind that NCCL has, on `stream`, and returns when NCCL has queued it. Throws NcclFailure,
  /// also after abort().
  void run(const Collective& call, const Buffers& buffers, CUstream_st* stream, Check check);
  /// The failure of a queued call, if any. Reports nothing while another thread is inside NCCL.
  std::optional<std::string> trouble();

  /// Ends queued work on this rank. If NCCL takes longer than kPatience, its thread is abandoned with a warning.
  void abort() noexcept;
  /// The regular end, called when no work is queued. If other ranks do not leave within kPatience, aborts instead.
  void leave() noexcept;

  static constexpr std::chrono::seconds kPatience{5};

 private:
  using Calls = core::FunctionRef<ncclResult_t(ncclComm_t comm)>;
  ncclResult_t inside(Calls calls);
  void settle(Check check);
  ncclComm_t take() noexcept;

  // Held while inside NCCL.
  cuda::OrderedMutex<cuda::LockPlace::nccl_communicator, std::timed_mutex> mutex_;
  ncclComm_t comm_ = nullptr;
  int gpu_;
  int rank_;
  int size_;
};

}  // namespace tandem::inline v0::parallel::nccl
