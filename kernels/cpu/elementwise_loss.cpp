#include <tandem/kernels/elementwise_loss.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/loss_rows.h>
#include <tandem/kernels/elementwise_loss_formulas.h>

namespace tandem::inline v0::kernels {

namespace {

// Calls body.operator()<op, T>() for the kernel's op and dtype.
template <class Kernel, class Body>
void dispatch(const Kernel& kernel, Body&& body) {
  core::dispatch_floating(kernel.dtype, Kernel::kName, [&]<class T>() { for_loss<T>(kernel.op, body); });
}

constexpr std::int64_t chunk_of(LossOp op) { return of_difference(op) ? cpu::kElementChunk : cpu::kExponentialChunk; }

// Gives the loss and the gradients of element i, from the fields that both kernels have.
template <LossOp op, class T>
class Elements {
 public:
  using C = ComputeType<T>;

  template <class Kernel>
  explicit Elements(const Kernel& kernel)
      : input_(static_cast<const T*>(kernel.input)),
        target_(static_cast<const T*>(kernel.target)),
        weight_(static_cast<const T*>(kernel.weight)),
        pos_weight_(static_cast<const T*>(kernel.pos_weight)),
        threshold_(static_cast<C>(kernel.threshold)) {}

  C loss(std::int64_t i) const { return weight(i) * kernels::loss<op, C>(input_[i], target_[i], factors(i)); }
  C input_grad(std::int64_t i) const { return weight(i) * loss_input_grad<op, C>(input_[i], target_[i], factors(i)); }
  C target_grad(std::int64_t i) const { return weight(i) * loss_target_grad<op, C>(input_[i], target_[i], factors(i)); }

  /// All elements, for the loops of f32.
  cpu::LossRow row() const {
    return {.op = op,
            .count = 0,
            .input = input_,
            .target = target_,
            .weight = of_difference(op) ? nullptr : weight_,
            .pos_weight = of_difference(op) ? nullptr : pos_weight_,
            .threshold = threshold_};
  }

 private:
  C weight(std::int64_t i) const {
    if constexpr (of_difference(op)) return C(1);
    return weight_ != nullptr ? C(weight_[i]) : C(1);
  }
  LossFactors<C> factors(std::int64_t i) const {
    if constexpr (of_difference(op)) return {.threshold = threshold_};
    return {.threshold = threshold_, .pos_weight = pos_weight_ != nullptr ? C(pos_weight_[i]) : C(1)};
  }

  const T* input_;
  const T* target_;
  const T* weight_;
  const T* pos_weight_;
  C threshold_;
};

// Sums in eight independent f64 chains, in a fixed order. follow(begin, end) is called for each stretch while the
// stretch is in cache.
template <LossOp op, class T, class Follow>
double sum_of_losses(const Elements<op, T>& elements, std::int64_t begin, std::int64_t end, const Follow& follow) {
  using C = ComputeType<T>;
  constexpr int kLanes = cpu::kLossLanes;
  constexpr std::int64_t kStretch = cpu::kLossStretch;
  double lanes[kLanes] = {};
  for (std::int64_t first = begin; first < end; first += kStretch) {
    const std::int64_t last = std::min(end, first + kStretch);
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(add_losses)(elements.row().from(first, last), lanes);
      follow(first, last);
      continue;
    }
    C losses[kStretch];  // loops of their own, because the compiler then uses vectors for both
    const std::int64_t count = last - first;
    for (std::int64_t i = 0; i < count; ++i) {
      losses[i] = elements.loss(first + i);
    }
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += static_cast<double>(losses[i + lane]);
      }
    }
    for (int lane = 0; i < count; ++i, ++lane) {
      lanes[lane] += static_cast<double>(losses[i]);
    }
    follow(first, last);
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

// The gradient by the input for one gradient of all losses.
void input_gradient_f32(const ElementwiseLossGrad& kernel) {
  const float grad = kernel.grad != nullptr ? *static_cast<const float*>(kernel.grad) : 1.0F;
  const float factor = grad * static_cast<float>(kernel.scale);
  for_loss<float>(kernel.op, [&]<LossOp op, class T>() {
    const Elements<op, float> elements(kernel);
    core::parallel_for(kernel.count, chunk_of(op), [&](std::int64_t begin, std::int64_t end) {
      TANDEM_BY_ISA(loss_gradients)
      (elements.row().from(begin, end), factor, static_cast<float*>(kernel.result) + begin, kernel.accumulate);
    });
  });
}

}  // namespace

void run(OnCpu, Context& context, const ElementwiseLoss& kernel) {
  dispatch(kernel, [&]<LossOp op, class T>() {
    const Elements<op, T> elements(kernel);
    T* loss = static_cast<T*>(kernel.loss);
    constexpr std::int64_t kChunk = chunk_of(op);
    if (kernel.loss_per_element) {
      core::parallel_for(kernel.count, kChunk, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          loss[i] = T(elements.loss(i));
        }
      });
      return;
    }
    T* gradient = static_cast<T*>(kernel.input_grad);
    const auto scale = static_cast<ComputeType<T>>(kernel.scale);
    const double total =
        cpu::join_chunks(context.scratch, kernel.count, kChunk, 0.0, [&](std::int64_t begin, std::int64_t end) {
          if (gradient == nullptr) {
            return sum_of_losses(elements, begin, end, [](std::int64_t, std::int64_t) {});
          }
          return sum_of_losses(elements, begin, end, [&](std::int64_t first, std::int64_t last) {
            if constexpr (std::is_same_v<T, float>) {
              TANDEM_BY_ISA(loss_gradients)(elements.row().from(first, last), scale, gradient + first, Accumulate::no);
            } else {
              for (std::int64_t i = first; i < last; ++i) {
                gradient[i] = T(elements.input_grad(i) * scale);
              }
            }
          });
        });
    *loss = T(static_cast<ComputeType<T>>(total * kernel.scale));
  });
}

void run(OnCpu, Context&, const ElementwiseLossGrad& kernel) {
  dispatch(kernel, [&]<LossOp op, class T>() {
    using C = ComputeType<T>;
    const Elements<op, T> elements(kernel);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* out = static_cast<T*>(kernel.result);
    const C scale = static_cast<C>(kernel.scale);
    const C common = kernel.loss_per_element || grad == nullptr ? scale : grad[0] * scale;
    const auto write = [&](auto&& slope) {
      core::parallel_for(kernel.count, chunk_of(op), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const C value = slope(i) * (kernel.loss_per_element ? grad[i] * scale : common);
          out[i] = T(kernel.accumulate == Accumulate::yes ? out[i] + value : value);
        }
      });
    };
    if (kernel.of_target) {
      write([&](std::int64_t i) { return elements.target_grad(i); });
    } else if (std::is_same_v<T, float> && !kernel.loss_per_element) {
      input_gradient_f32(kernel);
    } else {
      write([&](std::int64_t i) { return elements.input_grad(i); });
    }
  });
}

void run(OnCpu, Context&, const RescaleGradient& kernel) {
  core::dispatch_floating(kernel.dtype, RescaleGradient::kName, [&]<class T>() {
    const ComputeType<T> g = *static_cast<const T*>(kernel.grad);
    if (g == 1) {
      return;
    }
    T* const gradient = static_cast<T*>(kernel.gradient);
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        gradient[i] = T(gradient[i] * g);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
