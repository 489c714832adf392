#include <limits>

#include <tandem/autograd/ops/loss.h>
#include <tandem/core/bad_value.h>
#include <tandem/core/dispatch.h>
#include <tandem/kernels/elementwise_loss.h>

// Losses that compare an input with a target of the same shape, element by element. elementwise_loss() runs them all.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

using core::MessagePrefix;
using kernels::LossOp;

// Options of an elementwise loss. A null or undefined weight counts as 1.
struct How {
  Reduction reduction = Reduction::mean;
  double threshold = 1;
  const Tensor* weight = nullptr;
  const Tensor* pos_weight = nullptr;
};

void check_pair(LossNames names, const Tensor& input, const Tensor& target) {
  check_floating(names.op, input);
  check_same_kind(names.op, input, target);
  check<ShapeError>(input.shape() == target.shape(), "{}{} {} and target {} differ{} [TDM-E304]",
                    MessagePrefix{names.op}, names.input, input.shape(), target.shape(),
                    input.numel() == target.numel() ? "; reshape one (y.reshape({-1, 1}) for a column)" : "");
}

// The weight of each input element as a dense view; undefined if no weight is given.
View spread(LossNames names, const char* what, const Tensor& input, const Tensor* weight) {
  if (weight == nullptr || !weight->defined()) {
    return {};
  }
  const Shape& sizes = input.shape();
  const Shape& from = weight->shape();
  bool fits = from.ndim() <= sizes.ndim();
  for (int i = 1; fits && i <= from.ndim(); ++i) {
    fits = from[from.ndim() - i] == 1 || from[from.ndim() - i] == sizes[sizes.ndim() - i];
  }
  if (!fits) [[unlikely]] {
    fail<ShapeError>("{}{} {} does not broadcast to the {} {}", MessagePrefix{names.op}, what, from, names.input,
                     sizes);
  }
  const Tensor in_type = autocasts() ? raised(*weight) : *weight;
  check_loss_weight(names, what, input, in_type);
  return detail::contiguous(detail::expand(in_type.raw(), sizes));
}

// The factor for the sum over `count` losses. The mean of no elements is NaN, as in PyTorch.
double scale_of(Reduction reduction, std::int64_t count) {
  if (reduction != Reduction::mean) {
    return 1;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : 1 / static_cast<double>(count);
}

// Runs `loss` in the common dtype, for losses that accept two dtypes in PyTorch. elementwise_loss() rejects two dtypes
// for all others.
template <class Loss>
Tensor promoted(LossNames names, const Tensor& input, const Tensor& target, Loss&& loss) {
  check_same_device(names.op, input, target);
  const DType dtype = result_type(input, target);
  return loss(input.to(dtype), target.to(dtype));
}

// The loss of each element as a formula of ops, which has second derivatives.
Tensor losses_of(LossOp op, const Tensor& x, const Tensor& t, double threshold, const Tensor& weight,
                 const Tensor& pos_weight) {
  Tensor loss;
  switch (op) {
    case LossOp::squared: return (x - t).pow(2);
    case LossOp::absolute: return (x - t).abs();
    case LossOp::smooth_l1: {
      const Tensor apart = (x - t).abs();
      return where(apart < threshold, apart * apart * (0.5 / threshold), apart - threshold / 2);
    }
    case LossOp::huber: {
      const Tensor apart = (x - t).abs();
      return where(apart <= threshold, apart * apart * 0.5, (apart - threshold / 2) * threshold);
    }
    case LossOp::binary: {
      constexpr double kLeastLog = -100;
      constexpr double kMost = std::numeric_limits<double>::infinity();
      loss = -(t * x.log().clamp(kLeastLog, kMost) + (1 - t) * (1 - x).log().clamp(kLeastLog, kMost));
      break;
    }
    case LossOp::binary_logits: {
      const Tensor positive = softplus(-x) * t;  // softplus(-x) is -log(sigmoid(x))
      loss = (pos_weight.defined() ? positive * pos_weight : positive) + softplus(x) * (1 - t);
      break;
    }
  }
  return weight.defined() ? loss * weight : loss;
}

Tensor elementwise_loss(LossNames names, LossOp op, const Tensor& input, const Tensor& target, const How& how) {
  if (raises({&input, &target})) [[unlikely]] {
    return elementwise_loss(names, op, raised(input), raised(target), how);
  }
  check_pair(names, input, target);
  View input_copy;
  View target_copy;
  const View& x = detail::contiguous(input.raw(), input_copy);
  const View& t = detail::contiguous(target.raw(), target_copy);
  const View weight = spread(names, "weight", input, how.weight);
  const View pos_weight = spread(names, "pos_weight", input, how.pos_weight);
  const bool per_element = how.reduction == Reduction::none;
  const std::int64_t count = x.numel();
  const double scale = scale_of(how.reduction, count);
  View loss = detail::empty_view(per_element ? x.sizes : Shape{}, x.dtype, x.device());
  // Loss and gradient in one pass.
  PreparedGradient prepared;
  if (kernels::ElementwiseLoss::can_prepare(op, x.dtype, per_element, count) && records({&input}) &&
      !target.requires_grad()) {
    prepared = PreparedGradient(x);
  }
  kernels::launch(detail::context_of(x), kernels::ElementwiseLoss{.op = op,
                                                                  .dtype = x.dtype,
                                                                  .loss_per_element = per_element,
                                                                  .scale = scale,
                                                                  .threshold = how.threshold,
                                                                  .count = count,
                                                                  .input = x.data(),
                                                                  .target = t.data(),
                                                                  .weight = data_of(weight),
                                                                  .pos_weight = data_of(pos_weight),
                                                                  .loss = loss.data(),
                                                                  .input_grad = prepared.data()});
  return record(names.op, std::move(loss), {&input, &target}, [&] {
    return [x = Saved(x), t = Saved(t), weight = SavedWeight(weight), pos_weight = SavedWeight(pos_weight),
            prepared = std::move(prepared), op, per_element, scale, threshold = how.threshold, count](auto& g) mutable {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor a = g.alias(0, x);
        const Tensor b = g.alias(1, t);
        const Tensor all = losses_of(op, a, b, threshold, weight.constant(g), pos_weight.constant(g));
        g.give_by(per_element ? all : all.sum() * scale, {{0, a}, {1, b}});
      } else {
        static_cast<void>(x.get(g)), static_cast<void>(t.get(g));
        if (prepared.deliver(g)) {
          return;
        }
        const bool is_one = g.is_one() && !per_element;
        View copy;
        const void* grad = is_one ? nullptr : detail::contiguous(g.output(), copy).data();
        for (const std::uint32_t i : {0u, 1u}) {
          if (!g.wants(i)) {
            continue;
          }
          const Destination to = g.destination(i);
          kernels::launch(detail::context_of(to.view), kernels::ElementwiseLossGrad{.op = op,
                                                                                    .dtype = to.view.dtype,
                                                                                    .loss_per_element = per_element,
                                                                                    .of_target = i == 1,
                                                                                    .accumulate = to.accumulate,
                                                                                    .scale = scale,
                                                                                    .threshold = threshold,
                                                                                    .count = count,
                                                                                    .input = x.get(g).data(),
                                                                                    .target = t.get(g).data(),
                                                                                    .weight = weight.data(g),
                                                                                    .pos_weight = pos_weight.data(g),
                                                                                    .grad = grad,
                                                                                    .result = to.view.data()});
        }
      }
    };
  });
}

// Throws ValueError naming the first element that is not a probability.
void check_probabilities(LossNames names, const Tensor& input) {
  if (input.device().type != DeviceType::cpu) {
    return;  // the GPU kernel checks itself; a check on the host would have to wait for it
  }
  const View x = detail::contiguous(input.raw());
  core::dispatch_floating(x.dtype, names.op, [&]<class T>() {
    using C = ComputeType<T>;
    const T* values = static_cast<const T*>(x.data());
    const std::int64_t count = x.numel();
    detail::host_work(names.op, [=] {
      for (std::int64_t i = 0; i < count; ++i) {
        if (!(C(values[i]) >= 0 && C(values[i]) <= 1)) [[unlikely]] {
          const core::BadValue bad{
              .kind = core::BadValue::Kind::probability, .position = i, .number = static_cast<double>(C(values[i]))};
          fail<ValueError>("{}{}{}", MessagePrefix{names.op}, core::describe(bad), core::code_of(bad));
        }
      }
    });
  });
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  constexpr LossNames kNames{"mse_loss", "input"};
  return promoted(kNames, input, target, [&](const Tensor& x, const Tensor& y) {
    return elementwise_loss(kNames, LossOp::squared, x, y, {.reduction = reduction});
  });
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  constexpr LossNames kNames{"l1_loss", "input"};
  if (input.dtype() == DType::boolean || target.dtype() == DType::boolean) {
    check_pair(kNames, input, target);  // bool operands cannot be subtracted, so they must have one dtype
  }
  return promoted(kNames, input, target, [&](const Tensor& x, const Tensor& y) {
    return elementwise_loss(kNames, LossOp::absolute, x, y, {.reduction = reduction});
  });
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta) {
  check<ConfigError>(beta >= 0, "{}beta must not be negative, got {}", MessagePrefix{"smooth_l1_loss"}, beta);
  constexpr LossNames kNames{"smooth_l1_loss", "input"};
  return promoted(kNames, input, target, [&](const Tensor& x, const Tensor& y) {
    return elementwise_loss(kNames, beta == 0 ? LossOp::absolute : LossOp::smooth_l1, x, y,
                            {.reduction = reduction, .threshold = beta});
  });
}

Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction, double delta) {
  check<ConfigError>(delta > 0, "{}delta must be positive, got {}", MessagePrefix{"huber_loss"}, delta);
  return elementwise_loss({"huber_loss", "input"}, LossOp::huber, input, target,
                          {.reduction = reduction, .threshold = delta});
}

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BCELossOptions& options) {
  if (raises({&input, &target})) [[unlikely]] {
    return binary_cross_entropy(raised(input), raised(target), options);
  }
  constexpr LossNames kNames{"binary_cross_entropy", "input"};
  check_pair(kNames, input, target);
  check_probabilities(kNames, input);
  return elementwise_loss(kNames, LossOp::binary, input, target,
                          {.reduction = options.reduction, .weight = &options.weight});
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BCEWithLogitsLossOptions& options) {
  constexpr LossNames kNames{"binary_cross_entropy_with_logits", "logits"};
  warn_if_result_of("sigmoid", kNames, logits, "it applies sigmoid() itself: give it what comes before");
  return elementwise_loss(
      kNames, LossOp::binary_logits, logits, target,
      {.reduction = options.reduction, .weight = &options.weight, .pos_weight = &options.pos_weight});
}

}  // namespace tandem::inline v0
