#include <tandem/parallel/comm/backend.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/launch.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/waiting.h>
#include <tandem/tensor/cuda_allocator.h>

namespace tandem::inline v0::parallel {

namespace {

using Kind = CollectiveKind;

// Large enough to keep a network busy, small enough for a copy to overlap with it.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

// The sizes of a rank's input and output, in multiples of `numel`.
struct Parts {
  std::int64_t in = 1;
  std::int64_t out = 1;
};

Parts parts_of(const Collective& call, int rank, int size) {
  const bool is_root = rank == call.root;
  switch (call.kind) {
    case Kind::all_reduce: return {1, 1};
    case Kind::broadcast: return is_root ? Parts{1, 0} : Parts{0, 1};
    case Kind::reduce: return {1, is_root ? 1 : 0};
    case Kind::all_gather: return {1, size};
    case Kind::gather: return {1, is_root ? size : 0};
    case Kind::reduce_scatter: return {size, 1};
    case Kind::scatter: return {is_root ? size : 0, 1};
    case Kind::all_to_all: return {size, size};
    case Kind::send: return {1, 0};
    case Kind::recv: return {0, 1};
    case Kind::barrier:
    case Kind::new_group: break;
  }
  return {0, 0};
}

// Whether the call can be split into pieces by elements.
bool is_divisible(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::broadcast; }

// Page-locked host memory that mirrors a call's GPU memory.
class Staging {
 public:
  Staging(void* gpu, Device device, std::int64_t bytes)
      : gpu_(static_cast<std::byte*>(gpu)),
        device_(device),
        host_(bytes > 0 ? tandem::detail::allocate_pinned(static_cast<std::size_t>(bytes)) : nullptr) {}

  std::byte* host(std::int64_t offset) const { return host_ ? host_->data() + offset : nullptr; }
  void copy_down(std::int64_t offset, std::int64_t bytes) const {
    queue({.out_device = {}, .in_device = device_, .out = host(offset), .in = gpu_ + offset, .bytes = bytes});
  }
  void copy_up(std::int64_t offset, std::int64_t bytes) const {
    queue({.out_device = device_, .in_device = {}, .out = gpu_ + offset, .in = host(offset), .bytes = bytes});
  }

 private:
  void queue(kernels::Transfer copy) const {
    if (copy.bytes > 0) {
      copy.wait = false;
      kernels::launch(kernels::context_for(device_), copy);
      tandem::detail::note_pinned_use(host_->data(), cuda::current_stream(device_));
    }
  }

  std::byte* gpu_;
  Device device_;
  core::Ref<tandem::detail::Storage> host_;
};

class StagedBackend final : public Backend {
 public:
  explicit StagedBackend(std::unique_ptr<Backend> host) : Backend(host->names()), host_(std::move(host)) {}

  std::string_view name() const noexcept override { return host_->name(); }
  int rank() const noexcept override { return host_->rank(); }
  int size() const noexcept override { return host_->size(); }
  std::string refusal(const Collective& call) const override { return host_->refusal(on_host(call)); }
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) override {
    host_->exchange(mine, all, time);
  }
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override {
    buffers.device.type == DeviceType::cpu ? host_->run(call, buffers, time) : run_on_gpu(call, buffers, time);
  }
  std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) override {
    std::unique_ptr<Backend> host = host_->split(members, time);
    return host ? staged_backend(std::move(host)) : nullptr;
  }
  bool await_message(const Collective& call, const CallTime& time) override {
    return host_->await_message(on_host(call), time);
  }
  void interrupt() noexcept override { host_->interrupt(); }
  void abort(const CommError& cause) noexcept override { host_->abort(cause); }
  std::optional<CommError> failure() const override { return host_->failure(); }

 private:
  static Collective on_host(Collective call) {
    call.device = DeviceType::cpu;
    return call;
  }
  void run_on_gpu(const Collective& call, const Buffers& buffers, const CallTime& time);
  void wait_for(const cuda::Event& event, const Collective& call, const CallTime& time) const;

  std::unique_ptr<Backend> host_;
};

// Queues all copies from the GPU at once, so that the next piece is copied while the network carries the previous one.
void StagedBackend::run_on_gpu(const Collective& call, const Buffers& buffers, const CallTime& time) {
  const cuda::Stream stream = cuda::current_stream(buffers.device);
  const auto item = static_cast<std::int64_t>(item_size(call.dtype));
  const Parts parts = parts_of(call, rank(), size());
  const bool in_place = buffers.in == buffers.out;  // also true if one is the beginning of the other
  const std::int64_t in_parts = in_place ? std::max(parts.in, parts.out) : parts.in;
  const Staging in(const_cast<void*>(buffers.in), buffers.device, in_parts * buffers.numel * item);
  const Staging apart(buffers.out, buffers.device, in_place ? 0 : parts.out * buffers.numel * item);
  const Staging& out = in_place ? in : apart;

  const std::int64_t most = is_divisible(call.kind) ? std::max<std::int64_t>(kPieceBytes / item, 1) : buffers.numel;
  struct Piece {
    std::int64_t first;
    std::int64_t numel;
    std::optional<cuda::Event> is_down;
  };
  std::vector<Piece> pieces;
  std::int64_t first = 0;
  do {  // an empty call still runs once
    const std::int64_t numel = std::min(most, buffers.numel - first);
    in.copy_down(first * item, parts.in * numel * item);
    pieces.push_back({first, numel, std::nullopt});
    if (parts.in > 0) {
      pieces.back().is_down = stream.record_event();
    }
    first += numel;
  } while (first < buffers.numel);

  for (const Piece& piece : pieces) {
    if (piece.is_down) {
      wait_for(*piece.is_down, call, time);
    }
    const std::int64_t offset = piece.first * item;
    host_->run(on_host(call), {in.host(offset), out.host(offset), piece.numel}, time);
    out.copy_up(offset, parts.out * piece.numel * item);
  }
}

void StagedBackend::wait_for(const cuda::Event& event, const Collective& call, const CallTime& time) const {
  const bool came = poll_until(time.deadline, [&] {
    if (const std::optional<CommError> failure = host_->failure()) {
      throw CommError(*failure);
    }
    return event.query();
  });
  if (!came) {
    throw late_gpu_error(rank(), event.device(), call, time);
  }
}

}  // namespace

std::unique_ptr<Backend> staged_backend(std::unique_ptr<Backend> host) {
  return std::make_unique<StagedBackend>(std::move(host));
}

}  // namespace tandem::inline v0::parallel
