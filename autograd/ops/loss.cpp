#include <tandem/autograd/ops/loss.h>

#include <tandem/tensor/factories.h>

#include <cstring>
#include <string>
#include <utility>

#include <tandem/core/warning.h>
#include <tandem/kernels/elementwise_loss.h>

namespace tandem::inline v0::autograd {

using core::MessagePrefix;

bool PreparedGradient::deliver(Gradients& gradients) {
  if (!view_.defined()) {
    return false;
  }
  const View gradient = std::exchange(view_, View());
  if (!gradients.is_one()) {
    const View grad = detail::contiguous(gradients.output());
    kernels::launch(
        detail::context_of(gradient),
        kernels::RescaleGradient{
            .dtype = gradient.dtype, .count = gradient.numel(), .grad = grad.data(), .gradient = gradient.data()});
  }
  gradients.deliver(0, gradient, true);
  return true;
}

void check_target_device(LossNames names, const Tensor& input, const Tensor& target) {
  check<DeviceError>(input.device() == target.device(),
                     "{}{} are on {}, targets on {}. Move the targets: y.to(\"{}\") [TDM-E103]",
                     MessagePrefix{names.op}, names.input, input.device(), target.device(), input.device());
}

void check_loss_weight(LossNames names, const char* what, const Tensor& input, const Tensor& weight) {
  check<DeviceError>(weight.device() == input.device(),
                     "{}{} are on {}, {} on {}; move one with .to(device) [TDM-E103]", MessagePrefix{names.op},
                     names.input, input.device(), what, weight.device());
  check<DTypeError>(weight.dtype() == input.dtype(), "{}{} are {}, {} is {}; convert with .to(DType::{})",
                    MessagePrefix{names.op}, names.input, input.dtype(), what, weight.dtype(), input.dtype());
  if (records({&weight})) [[unlikely]] {
    fail<AutogradError>("{}{} requires a gradient, but has none here; hand in {}.detach()", MessagePrefix{names.op},
                        what, what);
  }
}

bool is_another_view(const char* op) {
  return std::strcmp(op, "squeeze") == 0 || std::strcmp(op, "reshape") == 0 || std::strcmp(op, "view") == 0;
}

void warn_if_result_of(const char* of, LossNames names, const Tensor& input, const char* advice) {
  auto* node = static_cast<Node*>(input.get()->history.get());
  while (node != nullptr && is_another_view(node->op())) {
    node = node->edge(0).node.get();
  }
  if (node != nullptr && std::strcmp(node->op(), of) == 0) [[unlikely]] {
    core::warn_once(fmt::format("{}: the {} are the result of {}(); {} [TDM-W205]", names.op, names.input, of, advice));
  }
}

Shape without_classes(const Shape& input) {
  Shape sizes = input;
  sizes.erase(class_dim(input));
  return sizes;
}

void check_index_target(LossNames names, const Tensor& input, const Tensor& target) {
  const Shape& sizes = input.shape();
  check<DTypeError>(is_floating_point(target.dtype()) || sizes.ndim() == 0 || !(target.shape() == sizes),
                    "{}targets {} of type {} have the shape of the {}: class indices are one a row (.argmax(1)); "
                    "probabilities are floating point (.to(DType::{})) [TDM-E302]",
                    MessagePrefix{names.op}, target.shape(), target.dtype(), names.input, input.dtype());
  check<DTypeError>(target.dtype() == DType::i64,
                    "{}targets must be class indices of type i64, got {}; convert with .to(DType::i64) [TDM-E302]",
                    MessagePrefix{names.op}, target.dtype());
  if (sizes.ndim() == 0 || sizes[class_dim(sizes)] < 1 || !(target.shape() == without_classes(sizes))) [[unlikely]] {
    const char* more = sizes.ndim() > 2 ? ", ..." : "";
    Shape column = sizes;  // shape of indices that keep the class dimension
    if (sizes.ndim() > 1) {
      column[class_dim(sizes)] = 1;
    }
    const bool is_column = sizes.ndim() > 1 && target.shape() == column;
    fail<ShapeError>("{}expected {} [rows, classes{}] and targets [rows{}], got {} and {}{} [TDM-E301]",
                     MessagePrefix{names.op}, names.input, more, more, sizes, target.shape(),
                     is_column ? "; take the dimension of 1 away: y.squeeze(1)" : "");
  }
  check_target_device(names, input, target);
}

core::BadValue bad_target(LossNames names, const Shape& target, std::int64_t classes, std::int64_t ignore_index) {
  core::BadValue bad{.kind = core::BadValue::Kind::target,
                     .op = names.op,
                     .end = classes,
                     .ignored = ignore_index,
                     .ndim = target.ndim()};
  std::copy(target.begin(), target.end(), bad.sizes);
  return bad;
}

void check_indices(const View& indices, const core::BadValue& bad) {
  if (indices.device().type != DeviceType::cpu) {
    return;  // the GPU kernel checks itself; a check on the host would have to wait for it
  }
  const auto* values = static_cast<const std::int64_t*>(indices.data());
  const std::int64_t count = indices.numel();
  detail::host_work(bad.op, [=] {
    for (std::int64_t i = 0; i < count; ++i) {
      if ((values[i] < 0 || values[i] >= bad.end) && values[i] != bad.ignored) [[unlikely]] {
        core::BadValue found = bad;
        found.position = i;
        found.value = values[i];
        fail<ValueError>("{}{}{}", MessagePrefix{bad.op}, describe(found), code_of(found));
      }
    }
  });
}

View class_weight(LossNames names, const Tensor& input, const Tensor& weight) {
  if (!weight.defined()) {
    return {};
  }
  const std::int64_t classes = input.shape()[class_dim(input.shape())];
  if (!(weight.shape() == Shape{classes})) [[unlikely]] {
    fail<ShapeError>("{}expected one weight for each of the {} classes of the {} {}, got {}", MessagePrefix{names.op},
                     classes, names.input, input.shape(), weight.shape());
  }
  const Tensor in_type = autocasts() ? raised(weight) : weight;
  check_loss_weight(names, "weight", input, in_type);
  return detail::contiguous(in_type.raw());
}

Tensor weighted_classes(const Tensor& indices, std::int64_t classes, std::int64_t ignore_index, const Tensor& weight,
                        DType dtype) {
  const Tensor counts = (indices != ignore_index).reshape({-1, 1});
  const Tensor rows = where(counts, indices.reshape({-1, 1}), 0);
  const Tensor none = zeros({rows.size(0), classes}, {.dtype = dtype, .device = indices.device()});
  const Tensor chosen = none.scatter_add(1, rows, counts.to(dtype));
  return weight.defined() ? chosen * weight : chosen;
}

}  // namespace tandem::inline v0::autograd
