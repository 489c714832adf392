#pragma once

#include <cstdint>
#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

// Internal: broadcast_buffers.

namespace tandem::inline v0::parallel {

/// Gives all ranks the buffers of one rank, with one broadcast for each dtype and device. A graph that saved a buffer
/// stays valid if the buffer had the broadcast values already.
class BufferSync {
 public:
  /// `are_same`: all ranks have the same values now.
  BufferSync(const std::vector<Tensor>& buffers, bool are_same);
  /// A collective, unless the list of buffers was empty.
  void run(ProcessGroup& group, int from);

 private:
  struct Member {
    Tensor buffer;
    Tensor place{};             // a part of `flat`
    std::uint32_t version = 0;  // of the buffer, when all ranks had the same values
  };
  struct Part {
    std::vector<Member> members;
    Tensor flat;  // the members side by side
  };
  static void take(Member& member);

  std::vector<Part> parts_;
};

}  // namespace tandem::inline v0::parallel
