#pragma once

#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

// Internal.

namespace tandem::inline v0::parallel {

/// Makes everybody's buffers those of one rank, all of one dtype and device in one broadcast.
class BufferSync {
 public:
  explicit BufferSync(const std::vector<Tensor>& buffers);
  /// A collective, unless there are no buffers.
  void run(ProcessGroup& group, int from);

 private:
  struct Part {
    std::vector<Tensor> buffers;
    Tensor flat;  // all of them
  };
  std::vector<Part> parts_;
};

}  // namespace tandem::inline v0::parallel
