#include <tandem/kernels/elementwise_loss.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
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

// Room for a stretch of 16-bit elements as floats.
template <class T>
struct WideStretch {
  static constexpr std::int64_t kSize = is_16_bit<T> ? cpu::kLossStretch : 1;
  float input[kSize], target[kSize], weight[kSize], pos_weight[kSize];
};

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

  /// The elements [first, end) for the loops of f32, widened to `wide` if they have 16 bits.
  cpu::LossRow row(std::int64_t first, std::int64_t end, WideStretch<T>& wide) const {
    const auto widened = [&](const T* values, auto& to) -> const float* {
      if (values == nullptr) return nullptr;
      if constexpr (is_16_bit<T>) {
        cpu::widen(to, values + first, end - first);
        return to;
      } else {
        return values + first;
      }
    };
    return {.op = op,
            .count = end - first,
            .input = widened(input_, wide.input),
            .target = widened(target_, wide.target),
            .weight = of_difference(op) ? nullptr : widened(weight_, wide.weight),
            .pos_weight = of_difference(op) ? nullptr : widened(pos_weight_, wide.pos_weight),
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

// Writes out (+)= factor * the derivative by the input. Results of 16 bits are rounded once.
template <class T>
void write_gradients(const cpu::LossRow& row, float factor, T* out, Accumulate accumulate) {
  if constexpr (is_16_bit<T>) {
    float wide[cpu::kLossStretch];
    if (accumulate == Accumulate::yes) {
      cpu::widen(wide, out, row.count);
    }
    TANDEM_BY_ISA(loss_gradients)(row, factor, wide, accumulate);
    cpu::narrow(out, wide, row.count);
  } else {
    TANDEM_BY_ISA(loss_gradients)(row, factor, out, accumulate);
  }
}

// Sums in eight independent f64 chains, in a fixed order. Where `gradient` is not null, the gradients by the input,
// times `scale`, are written while their stretch is in the cache.
template <LossOp op, class T, class C = ComputeType<T>>
double sum_of_losses(const Elements<op, T>& elements, std::int64_t begin, std::int64_t end, T* gradient, C scale) {
  constexpr int kLanes = cpu::kLossLanes;
  constexpr std::int64_t kStretch = cpu::kLossStretch;
  double lanes[kLanes] = {};
  for (std::int64_t first = begin; first < end; first += kStretch) {
    const std::int64_t last = std::min(end, first + kStretch);
    if constexpr (std::is_same_v<C, float>) {
      WideStretch<T> wide;
      const cpu::LossRow row = elements.row(first, last, wide);
      TANDEM_BY_ISA(add_losses)(row, lanes);
      if (gradient != nullptr) {
        write_gradients(row, scale, gradient + first, Accumulate::no);
      }
    } else {
      C losses[kStretch];  // loops of their own, because the compiler then uses vectors for both
      const std::int64_t count = last - first;
      for (std::int64_t i = 0; i < count; ++i) {
        losses[i] = elements.loss(first + i);
      }
      std::int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
          lanes[lane] += losses[i + lane];
        }
      }
      for (int lane = 0; i < count; ++i, ++lane) {
        lanes[lane] += losses[i];
      }
      for (std::int64_t at = first; gradient != nullptr && at < last; ++at) {
        gradient[at] = elements.input_grad(at) * scale;
      }
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
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
    const double total = cpu::join_chunks(
        context.scratch, kernel.count, kChunk, 0.0,
        [&](std::int64_t begin, std::int64_t end) { return sum_of_losses(elements, begin, end, gradient, scale); });
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
    if constexpr (std::is_same_v<C, float>) {
      if (!kernel.of_target && !kernel.loss_per_element) {
        return core::parallel_for(kernel.count, chunk_of(op), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t first = begin; first < end; first += cpu::kLossStretch) {
            WideStretch<T> wide;
            const std::int64_t last = std::min(end, first + cpu::kLossStretch);
            write_gradients(elements.row(first, last, wide), common, out + first, kernel.accumulate);
          }
        });
      }
    }
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
      if constexpr (is_16_bit<T>) {
        cpu::change_pieces(gradient + begin, end - begin, [g](float* floats, std::int64_t, std::int64_t count) {
          std::transform(floats, floats + count, floats, [g](float value) { return value * g; });
        });
      } else {
        for (std::int64_t i = begin; i < end; ++i) {
          gradient[i] *= g;
        }
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
