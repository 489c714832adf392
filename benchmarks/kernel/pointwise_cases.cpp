#include <utility>

#include <tandem/kernels/pointwise.h>
#include <tandem/kernels/pointwise_formulas.h>

#include "kernel/case.h"

// Element-wise functions: each on dense arrays, and additions that broadcast. Functions that take a series or a call of
// the C library for each element are a family of their own.

namespace bench::kernel {

namespace {

using tandem::kernels::Pointwise;
using tandem::kernels::PointwiseOp;

struct Named {
  PointwiseOp op;
  const char* name;
};

constexpr Named kArithmetic[] = {
    {PointwiseOp::copy, "copy"},
    {PointwiseOp::add, "add"},
    {PointwiseOp::sub, "sub"},
    {PointwiseOp::mul, "mul"},
    {PointwiseOp::add_scalar, "add_scalar"},
    {PointwiseOp::mul_scalar, "mul_scalar"},
    {PointwiseOp::rsub_scalar, "rsub_scalar"},
    {PointwiseOp::neg, "neg"},
    {PointwiseOp::abs, "abs"},
    {PointwiseOp::sign, "sign"},
    {PointwiseOp::relu, "relu"},
    {PointwiseOp::clamp, "clamp"},
    {PointwiseOp::maximum, "maximum"},
    {PointwiseOp::minimum, "minimum"},
    {PointwiseOp::equal, "equal"},
    {PointwiseOp::div, "div"},
    {PointwiseOp::rdiv_scalar, "rdiv_scalar"},
    {PointwiseOp::sqrt, "sqrt"},
    {PointwiseOp::rsqrt, "rsqrt"},
    {PointwiseOp::floor, "floor"},
    {PointwiseOp::ceil, "ceil"},
    {PointwiseOp::round, "round"},
    {PointwiseOp::leaky_relu, "leaky_relu"},
    {PointwiseOp::abs_grad, "abs_grad"},
    {PointwiseOp::relu_grad, "relu_grad"},
    {PointwiseOp::clamp_grad, "clamp_grad"},
    {PointwiseOp::extreme_grad, "extreme_grad"},
    {PointwiseOp::div_grad, "div_grad"},
    {PointwiseOp::rdiv_scalar_grad, "rdiv_scalar_grad"},
    {PointwiseOp::expm1_grad, "expm1_grad"},
    {PointwiseOp::log1p_grad, "log1p_grad"},
    {PointwiseOp::sqrt_grad, "sqrt_grad"},
    {PointwiseOp::rsqrt_grad, "rsqrt_grad"},
    {PointwiseOp::tanh_grad, "tanh_grad"},
    {PointwiseOp::sigmoid_grad, "sigmoid_grad"},
    {PointwiseOp::leaky_relu_grad, "leaky_relu_grad"},
};

constexpr Named kFunctions[] = {
    {PointwiseOp::exp, "exp"},
    {PointwiseOp::expm1, "expm1"},
    {PointwiseOp::log, "log"},
    {PointwiseOp::log1p, "log1p"},
    {PointwiseOp::tanh, "tanh"},
    {PointwiseOp::sigmoid, "sigmoid"},
    {PointwiseOp::silu, "silu"},
    {PointwiseOp::gelu, "gelu"},
    {PointwiseOp::gelu_tanh, "gelu_tanh"},
    {PointwiseOp::softplus, "softplus"},
    {PointwiseOp::elu, "elu"},
    {PointwiseOp::silu_grad, "silu_grad"},
    {PointwiseOp::gelu_grad, "gelu_grad"},
    {PointwiseOp::gelu_tanh_grad, "gelu_tanh_grad"},
    {PointwiseOp::softplus_grad, "softplus_grad"},
    {PointwiseOp::elu_grad, "elu_grad"},
};

constexpr Named kLibraryFunctions[] = {
    {PointwiseOp::pow, "pow"},
    {PointwiseOp::pow_scalar, "pow_scalar"},
    {PointwiseOp::sin, "sin"},
    {PointwiseOp::cos, "cos"},
    {PointwiseOp::pow_grad_base, "pow_grad_base"},
    {PointwiseOp::pow_grad_exponent, "pow_grad_exponent"},
    {PointwiseOp::pow_scalar_grad, "pow_scalar_grad"},
    {PointwiseOp::sin_grad, "sin_grad"},
    {PointwiseOp::cos_grad, "cos_grad"},
};

// Whether the inputs must be positive.
bool takes_positive(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::log:
    case PointwiseOp::log1p:
    case PointwiseOp::log1p_grad:
    case PointwiseOp::sqrt:
    case PointwiseOp::rsqrt:
    case PointwiseOp::sqrt_grad:
    case PointwiseOp::rsqrt_grad:
    case PointwiseOp::div:
    case PointwiseOp::div_grad:
    case PointwiseOp::rdiv_scalar:
    case PointwiseOp::rdiv_scalar_grad:
    case PointwiseOp::pow:
    case PointwiseOp::pow_scalar:
    case PointwiseOp::pow_grad_base:
    case PointwiseOp::pow_grad_exponent:
    case PointwiseOp::pow_scalar_grad: return true;
    default: return false;
  }
}

Case dense_case(DType dtype, Size size, const Named& named) {
  const std::int64_t count = count_of(size);
  const int inputs = tandem::kernels::arity(named.op);
  Case made;
  Pointwise kernel{.op = named.op,
                   .dtype = dtype,
                   .loop = {1, {count}},
                   .out = along(made.data.zeros(dtype, count), 1),
                   .in = {},
                   .s = 0.7,
                   .t = 1.5};
  Pass pass;
  made.operation = {.name = named.name, .dtype = "", .sizes = {count}, .in = {}, .out = {kernel.out.data}};
  for (int i = 0; i < inputs; ++i) {
    kernel.in[i] =
        along(made.data.random(dtype, count, takes_positive(named.op) ? 2 : 4, takes_positive(named.op) ? 2.5 : 0), 1);
    made.operation.in.push_back(kernel.in[i].data);
    pass.push_back(reads(kernel.in[i].data, dtype, count));
  }
  for (int i = inputs; i < 3; ++i) {
    kernel.in[i] = kernel.in[0];
  }
  pass.push_back(writes(kernel.out.data, dtype, count));
  made.passes = {pass};
  made.run = launches(kernel);
  return made;
}

// A row or a column added to each row or column of a matrix.
Case broadcast_case(DType dtype, Size size, bool row) {
  const std::int64_t columns = size == Size::tiny ? 10 : 1024;
  const std::int64_t rows = rows_of(size, columns);
  Case made;
  const void* matrix = made.data.random(dtype, rows * columns);
  const void* vector = made.data.random(dtype, row ? columns : rows);
  void* out = made.data.zeros(dtype, rows * columns);
  const Operand other = row ? along(vector, 0, 1) : along(vector, 1, 0);
  made.run = launches(Pointwise{.op = PointwiseOp::add,
                                .dtype = dtype,
                                .loop = {2, {rows, columns}},
                                .out = along(out, columns, 1),
                                .in = {along(matrix, columns, 1), other, other}});
  made.passes = {{reads(matrix, dtype, rows * columns), writes(out, dtype, rows * columns)}};
  made.operation = {.name = row ? "add row" : "add column",
                    .dtype = "",
                    .sizes = {rows, columns},
                    .in = {matrix, vector},
                    .out = {out}};
  return made;
}

Case in_place_case(DType dtype, Size size) {
  const std::int64_t count = count_of(size);
  Case made;
  void* out = made.data.random(dtype, count);
  const void* in = made.data.random(dtype, count, 1e-3);
  made.run = launches(Pointwise{.op = PointwiseOp::copy,
                                .dtype = dtype,
                                .accumulate = Accumulate::yes,
                                .loop = {1, {count}},
                                .out = along(out, 1),
                                .in = {along(in, 1), along(in, 1), along(in, 1)}});
  made.passes = {{reads(in, dtype, count), updates(out, dtype, count)}};
  made.operation = {.name = "add in place", .dtype = "", .sizes = {count}, .in = {in}, .out = {out}};
  return made;
}

// f32 runs every function; the other types, which share their loops, run some.
std::vector<DType> dtypes_of(const Named& named) {
  switch (named.op) {
    case PointwiseOp::add:
    case PointwiseOp::mul:
    case PointwiseOp::relu:
    case PointwiseOp::div:
    case PointwiseOp::sqrt:
    case PointwiseOp::relu_grad:
    case PointwiseOp::exp:
    case PointwiseOp::log:
    case PointwiseOp::tanh:
    case PointwiseOp::sigmoid:
    case PointwiseOp::gelu:
    case PointwiseOp::gelu_grad:
    case PointwiseOp::pow: return kFloats;
    default: return {kF32};
  }
}

}  // namespace

void add_pointwise(Cases& cases) {
  const auto add = [&](const char* family, const Named& named) {
    cases.add(family, named.name, dtypes_of(named),
              [named](DType dtype, Size size) { return dense_case(dtype, size, named); });
  };
  for (const Named& named : kArithmetic) {
    add("pointwise", named);
  }
  cases.add("pointwise", "add row", kFloats, [](DType dtype, Size size) { return broadcast_case(dtype, size, true); });
  cases.add("pointwise", "add column", {kF32},
            [](DType dtype, Size size) { return broadcast_case(dtype, size, false); });
  cases.add("pointwise", "add in place", kFloats, in_place_case);
  for (const Named& named : kFunctions) {
    add("pointwise functions", named);
  }
  for (const Named& named : kLibraryFunctions) {
    add("pointwise libm", named);
  }
}

}  // namespace bench::kernel
