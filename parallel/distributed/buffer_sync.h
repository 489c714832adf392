#pragma once

#include <cstdint>
#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

// Internal.

namespace tandem::inline v0::parallel {

/// Makes everybody's buffers those of one rank, all of one dtype and device in one broadcast. Graphs that saved a buffer
/// stay good where it had these values already.
class BufferSync {
 public:
  explicit BufferSync(const std::vector<Tensor>& buffers);
  /// A collective, unless there are no buffers.
  void run(ProcessGroup& group, int from);

 private:
  struct Member {
    Tensor buffer;
    Tensor place{};             // in the flat one
    std::uint32_t version = 0;  // of the buffer, after the last run
  };
  struct Part {
    std::vector<Member> members;
    Tensor flat;  // all of them
  };
  static void take(Member& member);

  std::vector<Part> parts_;
};

}  // namespace tandem::inline v0::parallel
