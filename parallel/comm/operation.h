#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/tensor/view.h>

// Internal: one call of one rank, from the user's thread to the backend.

namespace tandem::inline v0::parallel::detail {

using tandem::detail::View;

struct Operation {
  /// One of the two is a dense stand-in for the other.
  struct Copy {
    View to;
    View from;
  };

  /// What orders a call on a GPU, where the group's work has a stream of its own.
  struct GpuOrder {
    explicit GpuOrder(Device device) : called(device), ended(device) {}
    cuda::Event called;  // what the caller's stream held at the call
    cuda::Event ended;   // the call's end, well or not
  };

  Collective call;
  Buffers buffers;
  CallTime time;
  bool compared = true;  // across ranks, before it runs
  bool runs = true;
  std::vector<Copy> before;  // it runs: what is not dense is packed ...
  std::vector<Copy> after;   // ... and unpacked
  View in;                   // keep alive what `buffers` points to
  View out;
  std::optional<GpuOrder> gpu;
  std::vector<int> members;        // of a new group
  std::unique_ptr<Backend> split;  // the new group's

  // Guarded by the queue's mutex.
  bool pending = false;  // queued, or being done
  std::optional<CommError> error;
  std::shared_ptr<Operation> next;
};

}  // namespace tandem::inline v0::parallel::detail
