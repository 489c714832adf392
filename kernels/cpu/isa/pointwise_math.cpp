#include <cstddef>
#include <utility>

#include <tandem/kernels/cpu/isa/vector_math.h>
#include <tandem/kernels/cpu/isa/vector_pow.h>
#include <tandem/kernels/cpu/pointwise_rows.h>

// Element-wise functions with an exponential, a logarithm, a power or a sine in them. Every element goes through the
// same vector formula, whatever its position in the row and whatever the strides.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

struct Scalars {
  Vec s, t;
};

// gelu_tanh's approximation of Phi(x).
TANDEM_SIMD Vec gelu_tanh_cdf(Vec x) {
  const Vec cubic = broadcast(formula::kGeluCubic<float>);
  return sigmoid(broadcast(formula::kGeluScale<float>) * (x + cubic * x * x * x));
}

// Vector versions of the formulas in pointwise_formulas.h.
template <PointwiseOp op>
TANDEM_SIMD Vec of(Vec a, [[maybe_unused]] Vec b, [[maybe_unused]] Vec c, [[maybe_unused]] const Scalars& by) {
  using enum PointwiseOp;
  const Vec one = broadcast(1);
  if constexpr (op == PointwiseOp::exp) return TANDEM_ISA::exp(a);
  if constexpr (op == PointwiseOp::expm1) return TANDEM_ISA::expm1(a);
  if constexpr (op == PointwiseOp::log) return TANDEM_ISA::log(a);
  if constexpr (op == PointwiseOp::log1p) return TANDEM_ISA::log1p(a);
  if constexpr (op == PointwiseOp::tanh) return TANDEM_ISA::tanh(a);
  if constexpr (op == PointwiseOp::sigmoid) return TANDEM_ISA::sigmoid(a);
  if constexpr (op == PointwiseOp::sin) return TANDEM_ISA::sin(a);
  if constexpr (op == PointwiseOp::cos) return TANDEM_ISA::cos(a);
  if constexpr (op == silu) return a * TANDEM_ISA::sigmoid(a);
  if constexpr (op == gelu) return a * normal(a).cdf;
  if constexpr (op == gelu_tanh) return a * gelu_tanh_cdf(a);
  if constexpr (op == softplus) {
    const Vec scaled = a * by.s;
    const Vec tail = log1p_below_one(exp_below_one(-magnitude(scaled)));
    return scaled > by.t ? a : (max(Vec{}, scaled) + tail) / by.s;
  }
  if constexpr (op == elu) return a > Vec{} ? a : by.s * TANDEM_ISA::expm1(a);
  // Squares are much cheaper than other powers.
  if constexpr (op == PointwiseOp::pow) {
    const Bits squares = b == broadcast(2);
    return any_negative(~squares) ? (squares != 0 ? a * a : TANDEM_ISA::pow(a, b)) : a * a;
  }
  if constexpr (op == pow_scalar) return by.s[0] == 2 ? a * a : TANDEM_ISA::pow(a, by.s);
  if constexpr (op == pow_grad_base) return c == Vec{} ? Vec{} : a * (c * TANDEM_ISA::pow(b, c - one));
  if constexpr (op == pow_grad_exponent) {
    const Vec slope = a * (TANDEM_ISA::pow(b, c) * TANDEM_ISA::log(b));
    return ((b == Vec{}) & (c >= Vec{})) != 0 ? Vec{} : slope;
  }
  if constexpr (op == pow_scalar_grad) {
    const float s = by.s[0];
    return s == 0 ? Vec{} : a * (by.s * (s == 2 ? b : s == 1 ? one : TANDEM_ISA::pow(b, by.s - one)));
  }
  if constexpr (op == sin_grad) return a * TANDEM_ISA::cos(b);
  if constexpr (op == cos_grad) return -a * TANDEM_ISA::sin(b);
  if constexpr (op == silu_grad) {
    const Vec y = TANDEM_ISA::sigmoid(b);
    return a * y * (one + b * (one - y));
  }
  if constexpr (op == gelu_grad) {
    const Normal of_b = normal(b);
    return a * (of_b.cdf + b * (of_b.density * broadcast(formula::kNormalFactor<float>)));
  }
  if constexpr (op == gelu_tanh_grad) {
    const Vec y = gelu_tanh_cdf(b);
    const Vec cubic = broadcast(3 * formula::kGeluCubic<float>);
    const Vec slope = broadcast(formula::kGeluScale<float>) * (one + cubic * b * b);
    return a * y * (one + b * (one - y) * slope);
  }
  if constexpr (op == softplus_grad) {
    const Vec scaled = b * by.s;
    return scaled > by.t ? a : a * TANDEM_ISA::sigmoid(scaled);
  }
  if constexpr (op == elu_grad) return b > Vec{} ? a : a * (by.s * TANDEM_ISA::exp(b));
}

// An input: a vector of neighbouring elements, or one element for all lanes.
struct Source {
  const float* data;
  bool dense;
  Vec all;

  Source(const float* from, std::int64_t stride) : data(from), dense(stride == 1), all(broadcast(*from)) {}
  TANDEM_SIMD Vec at(std::int64_t i) const { return dense ? load(data + i) : all; }
  TANDEM_SIMD Vec at(std::int64_t i, Mask mask) const { return dense ? load(data + i, mask) : all; }
};

template <PointwiseOp op, bool kAccumulate>
void strided_row(float* out, std::int64_t out_stride, const float* const (&in)[3], const std::int64_t (&stride)[3],
                 const Scalars& by, std::int64_t count) {
  float a[kLanes] = {};
  float b[kLanes] = {};
  float c[kLanes] = {};
  float result[kLanes];
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t size = count - i < kLanes ? count - i : kLanes;
    for (std::int64_t lane = 0; lane < size; ++lane) {
      a[lane] = in[0][(i + lane) * stride[0]];
      b[lane] = arity(op) > 1 ? in[1][(i + lane) * stride[1]] : 0;
      c[lane] = arity(op) > 2 ? in[2][(i + lane) * stride[2]] : 0;
    }
    store(result, of<op>(load(a), load(b), load(c), by));
    for (std::int64_t lane = 0; lane < size; ++lane) {
      float& target = out[(i + lane) * out_stride];
      target = kAccumulate ? target + result[lane] : result[lane];
    }
  }
}

template <PointwiseOp op, bool kAccumulate>
void math_row(float* out, std::int64_t out_stride, const float* const (&in)[3], const std::int64_t (&stride)[3],
              float s, float t, std::int64_t count) {
  const Scalars by{broadcast(s), broadcast(t)};
  const auto plain = [](std::int64_t step) { return step == 0 || step == 1; };
  if (count == 0) {
    return;
  }
  if (out_stride != 1 || !plain(stride[0]) || (arity(op) > 1 && !plain(stride[1])) ||
      (arity(op) > 2 && !plain(stride[2]))) {
    return strided_row<op, kAccumulate>(out, out_stride, in, stride, by, count);
  }
  const Source a(in[0], stride[0]);
  const Source b(in[arity(op) > 1 ? 1 : 0], stride[arity(op) > 1 ? 1 : 0]);
  const Source c(in[arity(op) > 2 ? 2 : 0], stride[arity(op) > 2 ? 2 : 0]);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec value = of<op>(a.at(i), b.at(i), c.at(i), by);
    store(out + i, kAccumulate ? load(out + i) + value : value);
  }
  if (i < count) {
    const Mask mask = first(count - i);
    const Vec value = of<op>(a.at(i, mask), b.at(i, mask), c.at(i, mask), by);
    store(out + i, kAccumulate ? load(out + i, mask) + value : value, mask);
  }
}

template <PointwiseOp op, bool kAccumulate>
constexpr PointwiseRow<float> row_or_null() {
  if constexpr (is_vector_math(op)) {
    return &math_row<op, kAccumulate>;
  } else {
    return nullptr;
  }
}

template <bool kAccumulate, std::size_t... kOps>
PointwiseRow<float> find(std::index_sequence<kOps...>, PointwiseOp op) {
  static constexpr PointwiseRow<float> rows[] = {row_or_null<static_cast<PointwiseOp>(kOps), kAccumulate>()...};
  return rows[static_cast<std::size_t>(op)];
}

}  // namespace

PointwiseRow<float> pointwise_math_row(PointwiseOp op, Accumulate accumulate) {
  constexpr auto kOps = std::make_index_sequence<static_cast<std::size_t>(PointwiseOp::count_)>{};
  return accumulate == Accumulate::yes ? find<true>(kOps, op) : find<false>(kOps, op);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
