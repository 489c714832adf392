#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/tensor/view.h>

// Internal: one call of one rank, on its way from the user's thread to the backend.

namespace tandem::inline v0::parallel::detail {

using tandem::detail::View;

struct Operation {
  /// A copy between a tensor that is not dense and its dense stand-in.
  struct Copy {
    View to;
    View from;
  };

  /// The events that order a call on a GPU, where the group has a stream of its own.
  struct GpuOrder {
    explicit GpuOrder(Device device) : called(device), ended(device) {}
    cuda::Event called;  // work that the caller's stream held at the call
    cuda::Event ended;   // end of the call, successful or not
  };

  Collective call;
  Buffers buffers;
  CallTime time;
  bool compared = true;  // whether ranks compare the call before it runs
  bool runs = true;
  std::vector<Copy> before;  // packs tensors that are not dense, before the call ...
  std::vector<Copy> after;   // ... and unpacks them after it
  View in;                   // in and out keep the memory of `buffers` alive
  View out;
  std::optional<GpuOrder> gpu;
  std::vector<int> members;        // ranks of a new group
  std::unique_ptr<Backend> split;  // the new group's backend

  // Guarded by the queue's mutex.
  bool pending = false;  // queued or running
  std::optional<CommError> error;
  std::shared_ptr<Operation> next;
};

}  // namespace tandem::inline v0::parallel::detail
