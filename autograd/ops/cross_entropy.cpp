#include <tandem/autograd/ops/loss.h>
#include <tandem/kernels/cross_entropy.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

constexpr LossNames kCrossEntropy{"cross_entropy", "logits"};
constexpr const char* kLogitsAdvice = "it applies softmax() itself: give it what comes before";

// Checks the targets. Returns true for probabilities, false for class indices.
bool check_target(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options) {
  check_floating(kCrossEntropy.op, logits);
  const Shape& sizes = logits.shape();
  const bool floating = is_floating_point(target.dtype());
  if (!floating || target.dim() + 1 == sizes.ndim()) {
    check_index_target(kCrossEntropy, logits, target);
    return false;
  }
  if (!(target.shape() == sizes) || sizes.ndim() == 0 || sizes[class_dim(sizes)] < 1) [[unlikely]] {
    fail<ShapeError>(
        "{}targets of type {} are probabilities: expected the shape of the logits, {} with a class or more, got {}. "
        "Class indices are of type i64 [TDM-E301]",
        core::MessagePrefix{kCrossEntropy.op}, target.dtype(), sizes, target.shape());
  }
  check_target_device(kCrossEntropy, logits, target);
  check_same_kind(kCrossEntropy.op, logits, target);
  if (options.ignore_index >= 0) [[unlikely]] {
    fail<ConfigError>("{}ignore_index is {}, but the targets are probabilities {}: no class index is there to ignore",
                      core::MessagePrefix{kCrossEntropy.op}, options.ignore_index, target.shape());
  }
  return true;
}

// Permutes [rows, classes, ...] to [rows, ..., classes].
Tensor classes_last(const Tensor& x) {
  Shape order = Shape::filled(x.dim(), 0);
  for (int i = 1; i + 1 < x.dim(); ++i) {
    order[i] = i + 1;
  }
  order[x.dim() - 1] = 1;
  return x.permute(order);
}

kernels::ClassTarget class_target(bool probabilities, const View& target, const void* weight,
                                  const CrossEntropyLossOptions& options, const core::BadValue& bad = {}) {
  return {.indices = probabilities ? nullptr : static_cast<const std::int64_t*>(target.data()),
          .probabilities = probabilities ? target.data() : nullptr,
          .weight = weight,
          .ignore_index = options.ignore_index,
          .label_smoothing = options.label_smoothing,
          .bad = bad};
}

// The loss of logits and probabilities whose last dimension holds the classes.
Tensor of_rows(const Tensor& logits, const Tensor& target, bool probabilities, const View& weight,
               const CrossEntropyLossOptions& options) {
  const View x = detail::contiguous(logits.raw());
  const View y = detail::contiguous(target.raw());
  Shape losses = x.sizes;
  const std::int64_t classes = losses.back();
  losses.erase(losses.ndim() - 1);
  const std::int64_t rows = x.numel() / classes;
  const core::BadValue bad = bad_target(kCrossEntropy, y.sizes, classes, options.ignore_index);
  if (!probabilities) {
    check_indices(y, bad);
  }
  const bool per_row = options.reduction == Reduction::none;
  View loss = detail::empty_view(per_row ? losses : Shape{}, x.dtype, x.device());
  // [rows, 2], followed by the scale.
  const View normalizer =
      detail::empty_view({2 * rows + 1}, x.dtype == DType::f64 ? DType::f64 : DType::f32, x.device());
  const auto scale_in = [rows](const View& v) {
    return static_cast<std::byte*>(v.data()) + 2 * rows * static_cast<std::int64_t>(item_size(v.dtype));
  };
  const kernels::ClassTarget shares = class_target(probabilities, y, data_of(weight), options, bad);
  // Softmax, loss and gradient in one pass.
  PreparedGradient prepared;
  if (kernels::CrossEntropy::can_prepare(x.device(), x.dtype, per_row, shares) && records({&logits})) {
    prepared = PreparedGradient(x);
  }
  kernels::launch(detail::context_of(x), kernels::CrossEntropy{.dtype = x.dtype,
                                                               .loss_per_row = per_row,
                                                               .mean = options.reduction == Reduction::mean,
                                                               .rows = rows,
                                                               .classes = classes,
                                                               .logits = x.data(),
                                                               .target = shares,
                                                               .normalizer = normalizer.data(),
                                                               .scale = scale_in(normalizer),
                                                               .loss = loss.data(),
                                                               .logits_grad = prepared.data()});
  return record("cross_entropy", std::move(loss), {&logits, &target}, [&] {
    return [logits = Saved(x), target = Saved(y), weight = SavedWeight(weight), normalizer = Saved(normalizer),
            prepared = std::move(prepared), ignore_index = options.ignore_index,
            label_smoothing = options.label_smoothing, probabilities, per_row, rows, classes, scale_in,
            is_mean = options.reduction == Reduction::mean, losses](auto& g) mutable {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor z = g.alias(0, logits);
        const Tensor t = g.alias(1, target);
        const DType dtype = z.dtype();
        const Tensor of_class = weight.constant(g);
        const Tensor chosen =
            probabilities ? t.reshape({rows, classes}) : weighted_classes(t, classes, ignore_index, of_class, dtype);
        Tensor wanted = chosen * (1 - label_smoothing);
        if (label_smoothing > 0) {
          const Tensor every = probabilities ? ones({rows, 1}, {.dtype = dtype, .device = z.device()})
                                             : (t != ignore_index).reshape({rows, 1}).to(dtype);
          const Tensor smooth = every * (label_smoothing / static_cast<double>(classes));
          wanted = wanted + (of_class.defined() && !probabilities ? smooth * of_class : smooth);
        }
        wanted = probabilities && of_class.defined() ? wanted * of_class : wanted;
        const Tensor each = -(wanted * z.reshape({rows, classes}).log_softmax(1)).sum({1});
        const Tensor whole =
            is_mean ? (probabilities ? each.sum() / static_cast<double>(rows) : each.sum() / chosen.sum()) : each.sum();
        g.give_by(per_row ? each.reshape(losses) : whole, {{0, z}, {1, t}});
      } else {
        const View& z = logits.get(g);
        const View& targets = target.get(g);
        if (prepared.deliver(g)) {
          return;
        }
        const View grad = detail::contiguous(g.output());
        const View& n = normalizer.get(g);
        const kernels::ClassTarget wanted = class_target(
            probabilities, targets, weight.data(g), {.ignore_index = ignore_index, .label_smoothing = label_smoothing});
        if (g.wants(0)) {
          const Destination to = g.destination(0);
          kernels::launch(detail::context_of(z), kernels::CrossEntropyGrad{.dtype = z.dtype,
                                                                           .loss_per_row = per_row,
                                                                           .accumulate = to.accumulate,
                                                                           .rows = rows,
                                                                           .classes = classes,
                                                                           .logits = z.data(),
                                                                           .target = wanted,
                                                                           .normalizer = n.data(),
                                                                           .scale = scale_in(n),
                                                                           .grad = grad.data(),
                                                                           .logits_grad = to.view.data()});
        }
        if (g.wants(1)) {
          const Destination to = g.destination(1);
          kernels::launch(detail::context_of(z), kernels::CrossEntropyTargetGrad{.dtype = z.dtype,
                                                                                 .loss_per_row = per_row,
                                                                                 .accumulate = to.accumulate,
                                                                                 .rows = rows,
                                                                                 .classes = classes,
                                                                                 .logits = z.data(),
                                                                                 .target = wanted,
                                                                                 .normalizer = n.data(),
                                                                                 .scale = scale_in(n),
                                                                                 .grad = grad.data(),
                                                                                 .probabilities_grad = to.view.data()});
        }
      }
    };
  });
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyLossOptions& options) {
  if (raises({&logits, &target})) [[unlikely]] {
    warn_if_result_of("softmax", kCrossEntropy, logits, kLogitsAdvice);
    return cross_entropy(raised(logits), raised(target), options);
  }
  const bool probabilities = check_target(logits, target, options);
  warn_if_result_of("softmax", kCrossEntropy, logits, kLogitsAdvice);
  check<ConfigError>(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                     "{}label_smoothing must be between 0 and 1, got {}", core::MessagePrefix{kCrossEntropy.op},
                     options.label_smoothing);
  const View weight = class_weight(kCrossEntropy, logits, options.weight);
  if (logits.dim() <= 2) {
    return of_rows(logits, target, probabilities, weight, options);
  }
  return of_rows(classes_last(logits), probabilities ? classes_last(target) : target, probabilities, weight, options);
}

}  // namespace tandem::inline v0
