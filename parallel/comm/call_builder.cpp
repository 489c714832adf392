#include <tandem/parallel/comm/call_builder.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel::detail {

using tandem::detail::select;
using tandem::detail::try_reshape;

CallBuilder::CallBuilder(const Backend& backend, CollectiveKind kind, const char* name)
    : backend_(backend), name_(name), operation_(std::make_shared<Operation>()) {
  tandem::detail::note_host_access(name);
  operation_->call.kind = kind;
}

CallBuilder::CallBuilder(const Backend& backend, CollectiveKind kind, const char* name, const Tensor& tensor)
    : CallBuilder(backend, kind, name) {
  check<ConfigError>(tensor.defined(), "{}: the tensor is undefined", name);
  device_ = tensor.device();
  Collective& call = operation_->call;
  call.dtype = tensor.dtype();
  call.device = device_.type;
  call.shape = tensor.shape();
  operation_->buffers.numel = tensor.numel();
}

void CallBuilder::set_root(const char* argument, int rank) {
  check<ConfigError>(rank >= 0 && rank < backend_.size(), "{}: {} is {}, but the group's ranks are 0 to {}", name_,
                     argument, rank, backend_.size() - 1);
  operation_->call.root = rank;
}

void CallBuilder::set_peer(const char* argument, int rank, int tag) {
  set_root(argument, rank);
  check<ConfigError>(!is_root(), "{}: {} is {}, this rank itself", name_, argument, rank);
  operation_->call.tag = tag;
}

void CallBuilder::set_op(ReduceOp op) {
  const DType dtype = operation_->call.dtype;
  check<DTypeError>(op != ReduceOp::avg || is_floating_point(dtype),
                    "{}: an average of {} need not be one; use ReduceOp::sum, or convert with .to(DType::f32)", name_,
                    dtype);
  operation_->call.op = op;
}

void CallBuilder::reads(const Tensor& tensor) {
  check_like("input", tensor);
  take(tensor);
}

void CallBuilder::writes(const Tensor& tensor) {
  check_like("output", tensor);
  give(tensor);
}

void CallBuilder::updates(const Tensor& tensor) {
  reads(tensor);
  note_written(tensor);
  operation_->out = operation_->in;
  if (!tensor.is_contiguous()) {
    operation_->after.push_back({tensor.raw(), operation_->out});
  }
}

void CallBuilder::reads(const char* argument, const std::vector<Tensor>& list) {
  check_list(argument, list);
  operation_->in = joined();
  for (int r = 0; r < backend_.size(); ++r) {
    operation_->before.push_back({part(operation_->in, r), list[static_cast<std::size_t>(r)].raw()});
  }
}

void CallBuilder::writes(const char* argument, const std::vector<Tensor>& list) {
  check_list(argument, list);
  operation_->out = joined();
  for (int r = 0; r < backend_.size(); ++r) {
    const Tensor& tensor = list[static_cast<std::size_t>(r)];
    note_written(tensor);
    operation_->after.push_back({tensor.raw(), part(operation_->out, r)});
  }
}

void CallBuilder::reads_joined(const char* argument, const Tensor& tensor) {
  check_joined(argument, tensor);
  take(tensor);
}

void CallBuilder::writes_joined(const char* argument, const Tensor& tensor) {
  check_joined(argument, tensor);
  give(tensor);
}

std::shared_ptr<Operation> CallBuilder::finish() {
  for (const std::vector<Operation::Copy>* copies : {&operation_->before, &operation_->after}) {
    for (const Operation::Copy& copy : *copies) {
      tandem::detail::ask_guard(*copy.from.storage);
      tandem::detail::ask_guard(*copy.to.storage);
    }
  }
  const std::string refusal = backend_.refusal(operation_->call);
  check<ConfigError>(refusal.empty(), "{}: {}", name_, refusal);
  const bool on_gpu = device_.type == DeviceType::cuda;
  const std::optional<Device> gpu = on_gpu ? backend_.gpu() : std::nullopt;
  check<DeviceError>(!gpu || *gpu == device_,
                     "{}: the tensor is on {}, and this rank's part of the group was made for {}; move it there with "
                     ".to(\"{}\")",
                     name_, device_, gpu.value_or(device_), to_string(gpu.value_or(device_)));
  check_apart();
  for (const View& view : written_) {
    view.storage->bump_version();
  }
  Buffers& buffers = operation_->buffers;
  buffers.in = operation_->in.defined() ? operation_->in.data() : nullptr;
  buffers.out = operation_->out.defined() ? operation_->out.data() : nullptr;
  buffers.device = device_;
  if (on_gpu) {
    operation_->gpu.emplace(device_);
  }
  return std::move(operation_);
}

void CallBuilder::check_kin(const char* argument, const Tensor& tensor) const {
  const DType dtype = operation_->call.dtype;
  check<ConfigError>(tensor.defined(), "{}: the {} is undefined", name_, argument);
  check<DTypeError>(tensor.dtype() == dtype, "{}: the {} is {}, and the other tensors are {}", name_, argument,
                    tensor.dtype(), dtype);
  check<DeviceError>(tensor.device() == device_, "{}: the {} is on {}, and the other tensors are on {}", name_,
                     argument, tensor.device(), device_);
}

void CallBuilder::check_like(const char* argument, const Tensor& tensor) const {
  const Shape& shape = operation_->call.shape;
  check_kin(argument, tensor);
  check<ShapeError>(tensor.shape() == shape, "{}: the {} is {}, and the other tensors are {}", name_, argument,
                    tensor.shape(), shape);
}

void CallBuilder::check_joined(const char* argument, const Tensor& tensor) const {
  check_kin(argument, tensor);
  const Collective& call = operation_->call;
  Shape stacked;
  stacked.push_back(backend_.size());
  for (int d = 0; d < std::min(call.shape.ndim(), kMaxDims - 1); ++d) {
    stacked.push_back(call.shape[d]);
  }
  Shape along = call.shape;
  if (!along.empty()) {
    along[0] *= backend_.size();
  }
  const Shape& shape = tensor.shape();
  const bool fits = (shape == stacked && call.shape.ndim() < kMaxDims) || (shape == along && !along.empty());
  check<ShapeError>(fits, "{}: the {} is {}; expected {}{}: a part {} for each of {} ranks", name_, argument, shape,
                    stacked, along.empty() ? "" : " or " + to_string(along), call.shape, backend_.size());
}

void CallBuilder::check_list(const char* argument, const std::vector<Tensor>& list) const {
  check<ConfigError>(list.size() == static_cast<std::size_t>(backend_.size()),
                     "{}: {} has {} tensors; expected {}, one for each rank", name_, argument, list.size(),
                     backend_.size());
  for (const Tensor& tensor : list) {
    check_like(argument, tensor);
  }
}

// Written memory must not overlap with read memory: other ranks may be reading while this rank writes.
void CallBuilder::check_apart() const {
  const View& in = operation_->in;
  const View& out = operation_->out;
  if (!in.defined() || !out.defined() ||
      (in.storage == out.storage && in.offset == out.offset && in.sizes == out.sizes &&
       operation_->call.kind != CollectiveKind::all_to_all)) {
    return;
  }
  const auto item = static_cast<std::int64_t>(item_size(in.dtype));
  const auto* in_begin = static_cast<const std::byte*>(in.data());
  const auto* out_begin = static_cast<const std::byte*>(out.data());
  const std::int64_t own_part = backend_.rank() * operation_->buffers.numel * item;
  const bool in_place = (in.numel() < out.numel() && in_begin == out_begin + own_part) ||
                        (out.numel() < in.numel() && out_begin == in_begin + own_part);
  const bool apart = in_begin + in.numel() * item <= out_begin || out_begin + out.numel() * item <= in_begin;
  check<ConfigError>(apart || in_place,
                     "{}: input and output share memory; only this rank's own part of the larger one may be the other",
                     name_);
}

void CallBuilder::note_written(const Tensor& tensor) {
  tandem::detail::check_writable(name_, tensor.raw());
  check<AutogradError>(
      !is_grad_enabled() || !tensor.requires_grad() || tensor.is_leaf(),
      "{}: the tensor {} is the result of recorded ops, and what other ranks send has no gradient; give "
      "its detach(), or call under NoGradGuard",
      name_, tensor.shape());
  written_.push_back(tensor.raw());
}

void CallBuilder::take(const Tensor& tensor) {
  operation_->in = dense(tensor.raw());
  if (!tensor.is_contiguous()) {
    operation_->before.push_back({operation_->in, tensor.raw()});
  }
}

void CallBuilder::give(const Tensor& tensor) {
  note_written(tensor);
  operation_->out = dense(tensor.raw());
  if (!tensor.is_contiguous()) {
    operation_->after.push_back({tensor.raw(), operation_->out});
  }
}

// Returns `view` if it is contiguous, else new memory of the same shape.
View CallBuilder::dense(const View& view) {
  return view.is_contiguous() ? view : tandem::detail::empty_view(view.sizes, view.dtype, view.device());
}

View CallBuilder::joined() const {
  return tandem::detail::empty_view({backend_.size(), operation_->buffers.numel}, operation_->call.dtype, device_);
}

View CallBuilder::part(const View& joined, int rank) const {
  return *try_reshape(select(joined, 0, rank), operation_->call.shape);
}

}  // namespace tandem::inline v0::parallel::detail
