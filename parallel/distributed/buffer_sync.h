#pragma once

#include <cstdint>
#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

// Internal.

namespace tandem::inline v0::parallel {

/// Makes everybody's buffers those of one rank, all of one dtype and device in one broadcast. Graphs that saved a
/// buffer stay good where it had these values already.
class BufferSync {
 public:
  /// `are_same`: whether all ranks have the same values now.
  BufferSync(const std::vector<Tensor>& buffers, bool are_same);
  /// A collective, unless there are no buffers.
  void run(ProcessGroup& group, int from);

 private:
  struct Member {
    Tensor buffer;
    Tensor place{};             // in the flat one
    std::uint32_t version = 0;  // of the buffer, when it was the same on all ranks
  };
  struct Part {
    std::vector<Member> members;
    Tensor flat;  // all of them
  };
  static void take(Member& member);

  std::vector<Part> parts_;
};

}  // namespace tandem::inline v0::parallel
