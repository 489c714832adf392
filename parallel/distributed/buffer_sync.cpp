#include <tandem/parallel/distributed/buffer_sync.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

BufferSync::BufferSync(const std::vector<Tensor>& buffers) {
  for (const Tensor& buffer : buffers) {
    const auto fits = [&](const Part& part) {
      const Tensor& first = part.members.front().buffer;
      return first.dtype() == buffer.dtype() && first.device() == buffer.device();
    };
    auto part = std::find_if(parts_.begin(), parts_.end(), fits);
    part = part == parts_.end() ? parts_.emplace(part) : part;
    part->members.push_back({.buffer = buffer, .version = buffer.version()});
  }
  for (Part& part : parts_) {
    std::int64_t numel = 0;
    for (const Member& member : part.members) {
      numel += member.buffer.numel();
    }
    const Tensor& first = part.members.front().buffer;
    part.flat = zeros({numel}, {.dtype = first.dtype(), .device = first.device()});
    std::int64_t offset = 0;
    for (Member& member : part.members) {
      member.place = part.flat.narrow(0, offset, member.buffer.numel()).reshape(member.buffer.shape());
      offset += member.buffer.numel();
    }
  }
}

// Whether the buffer has the bytes that came.
bool BufferSync::is_right(const Member& member) {
  const Tensor& buffer = member.buffer;
  const Tensor& place = member.place;
  // Looking at it waits for the GPU: not for running statistics, which this pass has changed.
  if (place.device().type == DeviceType::cuda && buffer.version() != member.version) {
    return false;
  }
  if (buffer.dtype() != place.dtype() || buffer.shape() != place.shape()) {
    return false;
  }
  const tandem::detail::View mine = tandem::detail::on_host(tandem::detail::contiguous(buffer.raw()));
  const tandem::detail::View came = tandem::detail::on_host(place.raw());
  const auto* bytes = static_cast<const std::byte*>(mine.data());
  const auto count = static_cast<std::size_t>(mine.numel()) * item_size(mine.dtype);
  return std::equal(bytes, bytes + count, static_cast<const std::byte*>(came.data()));
}

void BufferSync::run(ProcessGroup& group, int from) {
  const NoGradGuard no_grad;
  for (Part& part : parts_) {
    if (group.rank() == from) {
      for (Member& member : part.members) {
        member.place.copy_(member.buffer);
      }
    }
    group.broadcast(part.flat, from);
    for (Member& member : part.members) {
      if (group.rank() != from && !is_right(member)) {
        member.buffer.copy_(member.place);
      }
      member.version = member.buffer.version();
    }
  }
}

}  // namespace tandem::inline v0::parallel
