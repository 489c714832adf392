#include <tandem/parallel/distributed/wrapped_module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

bool has_bytes_of(const Tensor& buffer, const Tensor& place) {
  const tandem::detail::View mine = tandem::detail::contiguous(buffer.raw());
  const auto* bytes = static_cast<const std::byte*>(mine.data());
  const auto count = static_cast<std::size_t>(mine.numel()) * item_size(mine.dtype);
  return std::equal(bytes, bytes + count, static_cast<const std::byte*>(place.raw().data()));
}

}  // namespace

bool is_wrapped(const Tensor& parameter) {
  const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
  return leaf != nullptr && leaf->observer != nullptr;
}

std::vector<std::string> describe(const nn::ModuleRef& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::string& name, const Tensor& tensor, const char* end) {
    lines.push_back(
        fmt::format("{} '{}': {} {}, strides {}{}", what, name, tensor.dtype(), tensor.shape(), tensor.strides(), end));
  };
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (is_wrapped(parameter)) {
      lines.push_back(fmt::format("parameter '{}' in another DistributedDataParallel already", name));
    } else {
      add("parameter", name, parameter, parameter.requires_grad() ? ", trained" : ", frozen");
    }
  }
  for (const auto& [name, buffer] : module.named_buffers()) {
    add("buffer", name, buffer, "");
  }
  return lines;
}

void check_takes_no_gradient(const std::string& name, const Tensor& buffer) {
  check<ConfigError>(
      !buffer.requires_grad(),
      "DistributedDataParallel: buffer '{}' requires a gradient, which would be that of each rank alone: "
      "register it as a parameter, or keep it out of the graph (requires_grad_(false), detach())",
      name);
}

WrappedModule::WrappedModule(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options)
    : module_(std::move(module)), frozen_(module_.parameters()), structure_version_(nn::detail::structure_version()) {
  const std::vector<Tensor> buffers = module_.buffers();
  if (options.init_sync && group.size() > 1) {
    std::vector<Tensor> state = module_.parameters();
    state.insert(state.end(), buffers.begin(), buffers.end());
    const NoGradGuard no_grad;
    for (const Tensor& tensor : state) {
      group.broadcast(tensor, 0);
    }
  }
  std::erase_if(frozen_, [](const Tensor& parameter) { return parameter.requires_grad(); });
  for (const Tensor& buffer : buffers) {
    buffers_.push_back({buffer, options.init_sync ? buffer.version() : buffer.version() - 1});
  }
  if (options.broadcast_buffers && group.size() > 1) {
    make_places();
  }
}

void WrappedModule::make_places() {
  for (const SharedBuffer& first : buffers_) {
    if (first.place.defined()) {
      continue;
    }
    const TensorOptions kind{.dtype = first.buffer.dtype(), .device = first.buffer.device()};
    std::vector<SharedBuffer*> alike;
    std::int64_t numel = 0;
    for (SharedBuffer& shared : buffers_) {
      if (shared.buffer.dtype() == kind.dtype && shared.buffer.device() == kind.device) {
        alike.push_back(&shared);
        numel += shared.buffer.numel();
      }
    }
    const Tensor flat = flats_.emplace_back(zeros({numel}, kind));
    std::int64_t offset = 0;
    for (SharedBuffer* shared : alike) {
      shared->place = flat.narrow(0, offset, shared->buffer.numel()).reshape(shared->buffer.shape());
      offset += shared->buffer.numel();
    }
  }
}

void WrappedModule::check_unchanged(const std::vector<BucketMember>& trained, const autograd::LeafObserver& observer) {
  for (const BucketMember& member : trained) {
    check<ConfigError>(member.leaf->place == member.place,
                       "DistributedDataParallel: parameter '{}' was moved to another device or dtype after the module "
                       "was wrapped; move it first, then wrap it [TDM-E611]",
                       member.name);
    check<ConfigError>(static_cast<bool>(member.parameter.unresolved()->history),
                       "DistributedDataParallel: parameter '{}' was frozen after the module was wrapped; freeze it on "
                       "all ranks, then wrap the module again",
                       member.name);
  }
  for (const Tensor& parameter : frozen_) {
    check<ConfigError>(!parameter.unresolved()->history,
                       "DistributedDataParallel: parameter '{}' requires a gradient since the module was wrapped; thaw "
                       "it on all ranks, then wrap the module again",
                       autograd::parameter_name(parameter));
  }
  if (std::ranges::any_of(buffers_, [](const SharedBuffer& shared) { return shared.buffer.requires_grad(); })) {
    for (const auto& [name, buffer] : module_.named_buffers()) {
      check_takes_no_gradient(name, buffer);
    }
  }
  const std::uint64_t version = nn::detail::structure_version();
  if (version == structure_version_) {
    return;  // no module of the process has changed
  }
  const std::size_t parameters_then = trained.size() + frozen_.size();
  const nn::NamedTensors parameters = module_.named_parameters();
  check<ConfigError>(parameters.size() == parameters_then,
                     "DistributedDataParallel: the module has {} parameters, and had {} when it was wrapped; build it "
                     "first, then wrap it",
                     parameters.size(), parameters_then);
  constexpr const char* kNew =
      "DistributedDataParallel: {} '{}' is another one than when the module was wrapped; replace layers first, then "
      "wrap the module";
  for (const auto& [name, parameter] : parameters) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    check<ConfigError>((leaf != nullptr && leaf->observer == &observer) ||
                           std::ranges::find(frozen_, parameter.unresolved(), &Tensor::unresolved) != frozen_.end(),
                       kNew, "parameter", name);
  }
  for (const auto& [name, buffer] : module_.named_buffers()) {
    const auto is_it = [&](const SharedBuffer& shared) { return shared.buffer.unresolved() == buffer.unresolved(); };
    check<ConfigError>(std::ranges::any_of(buffers_, is_it), kNew, "buffer", name);
  }
  structure_version_ = version;
}

// A graph that saved the buffer stays valid where no rank has changed the buffer. A comparison would wait for a GPU, so
// a buffer on a GPU counts as unchanged when this rank has not written it. If the sender has written its own buffer,
// the sender's graphs report that.
void WrappedModule::take(SharedBuffer& shared) {
  const Tensor& place = shared.place;
  Tensor& buffer = shared.buffer;
  const bool fits =
      buffer.dtype() == place.dtype() && buffer.shape() == place.shape() && buffer.device() == place.device();
  const bool on_gpu = place.device().type == DeviceType::cuda;
  if (fits && on_gpu && buffer.version() == shared.version) {
    tandem::detail::copy(buffer.raw(), place.raw());
  } else if (!fits || on_gpu || !has_bytes_of(buffer, place)) {
    buffer.copy_(place);
  }
}

void WrappedModule::broadcast_buffers(ProcessGroup& group, int from) {
  if (flats_.empty()) {
    return;
  }
  const NoGradGuard no_grad;
  for (SharedBuffer& shared : buffers_) {
    if (group.rank() == from) {
      shared.place.copy_(shared.buffer);
    }
  }
  for (const Tensor& flat : flats_) {
    group.broadcast(flat, from);
  }
  for (SharedBuffer& shared : buffers_) {
    if (group.rank() != from) {
      take(shared);
    }
    shared.version = shared.buffer.version();
  }
}

}  // namespace tandem::inline v0::parallel
