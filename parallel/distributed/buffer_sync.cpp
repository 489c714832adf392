#include <tandem/parallel/distributed/buffer_sync.h>

#include <algorithm>
#include <cstdint>

#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

BufferSync::BufferSync(const std::vector<Tensor>& buffers) {
  for (const Tensor& buffer : buffers) {
    const auto fits = [&](const Part& part) {
      return part.buffers.front().dtype() == buffer.dtype() && part.buffers.front().device() == buffer.device();
    };
    auto part = std::find_if(parts_.begin(), parts_.end(), fits);
    part = part == parts_.end() ? parts_.emplace(part) : part;
    part->buffers.push_back(buffer);
  }
  for (Part& part : parts_) {
    std::int64_t numel = 0;
    for (const Tensor& buffer : part.buffers) {
      numel += buffer.numel();
    }
    part.flat = zeros({numel}, {.dtype = part.buffers.front().dtype(), .device = part.buffers.front().device()});
  }
}

void BufferSync::run(ProcessGroup& group, int from) {
  const NoGradGuard no_grad;
  for (const Part& part : parts_) {
    const auto each = [&](const auto& copy) {
      std::int64_t offset = 0;
      for (Tensor buffer : part.buffers) {
        copy(buffer, part.flat.narrow(0, offset, buffer.numel()).reshape(buffer.shape()));
        offset += buffer.numel();
      }
    };
    if (group.rank() == from) {
      each([](const Tensor& buffer, Tensor place) { place.copy_(buffer); });
    }
    group.broadcast(part.flat, from);
    if (group.rank() != from) {
      each([](Tensor& buffer, const Tensor& place) { buffer.copy_(place); });
    }
  }
}

}  // namespace tandem::inline v0::parallel
