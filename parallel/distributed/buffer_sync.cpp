#include <tandem/parallel/distributed/buffer_sync.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

BufferSync::BufferSync(const std::vector<Tensor>& buffers, bool are_same) {
  for (const Tensor& buffer : buffers) {
    const auto fits = [&](const Part& part) {
      const Tensor& first = part.members.front().buffer;
      return first.dtype() == buffer.dtype() && first.device() == buffer.device();
    };
    auto part = std::find_if(parts_.begin(), parts_.end(), fits);
    part = part == parts_.end() ? parts_.emplace(part) : part;
    part->members.push_back({.buffer = buffer, .version = are_same ? buffer.version() : buffer.version() - 1});
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

namespace {

bool has_bytes_of(const Tensor& buffer, const Tensor& place) {
  const tandem::detail::View mine = tandem::detail::contiguous(buffer.raw());
  const auto* bytes = static_cast<const std::byte*>(mine.data());
  const auto count = static_cast<std::size_t>(mine.numel()) * item_size(mine.dtype);
  return std::equal(bytes, bytes + count, static_cast<const std::byte*>(place.raw().data()));
}

}  // namespace

// A graph that saved the buffer stays valid where no rank has changed the buffer. A comparison would wait for a GPU, so
// a buffer on a GPU counts as unchanged when this rank has not written it. If the sender has written its own buffer,
// the sender's graphs report that.
void BufferSync::take(Member& member) {
  const Tensor& place = member.place;
  Tensor& buffer = member.buffer;
  const bool fits =
      buffer.dtype() == place.dtype() && buffer.shape() == place.shape() && buffer.device() == place.device();
  const bool on_gpu = place.device().type == DeviceType::cuda;
  if (fits && on_gpu && buffer.version() == member.version) {
    tandem::detail::copy(buffer.raw(), place.raw());
  } else if (!fits || on_gpu || !has_bytes_of(buffer, place)) {
    buffer.copy_(place);
  }
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
      if (group.rank() != from) {
        take(member);
      }
      member.version = member.buffer.version();
    }
  }
}

}  // namespace tandem::inline v0::parallel
