#include <tandem/autograd/ops/common.h>
#include <tandem/tensor/factories.h>

// Comparisons, whose results are bool and have no gradient, and selection by a mask.

namespace tandem::inline v0 {

using namespace autograd;
using kernels::CompareOp;

namespace {

Tensor compare(const char* name, CompareOp op, const Tensor& a, const Tensor& b) {
  check_same_device(name, a, b);
  const DType dtype = result_type(a, b);
  const Tensor x = a.detach().to(dtype);
  const Tensor y = b.detach().to(dtype);
  const Shape sizes = broadcast_shapes(a.shape(), b.shape(), name);
  const MemoryFormat format = format_of_result(sizes, {&x.raw(), &y.raw()});
  const View out = detail::empty_view(sizes, DType::boolean, a.device(), format);
  detail::compare(op, out, x.raw(), y.raw());
  return Tensor(out);
}

bool is_bool(double value) { return value == 0 || value == 1; }

Tensor compare(CompareOp op, const Tensor& a, Scalar b) {
  // Compares in the tensor's own type if that type can hold the number. Otherwise small integers are compared as i64.
  const bool flag = a.dtype() == DType::boolean && is_bool(b.value());
  const Tensor x = flag ? a.detach() : a.detach().to(result_type(a, b));
  const bool held = flag || is_floating_point(x.dtype()) || detail::fits(x.dtype(), b.value());
  const Tensor wide = held ? x : x.to(DType::i64);
  const View out = detail::empty_view(a.shape(), DType::boolean, a.device(), wide.raw().memory_format());
  detail::compare(op, out, wide.raw(), scalar_view(b.value(), wide.raw()));
  return Tensor(out);
}

}  // namespace

Tensor operator==(const Tensor& a, const Tensor& b) { return compare("eq", CompareOp::eq, a, b); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return compare("ne", CompareOp::ne, a, b); }
Tensor operator<(const Tensor& a, const Tensor& b) { return compare("lt", CompareOp::lt, a, b); }
Tensor operator<=(const Tensor& a, const Tensor& b) { return compare("le", CompareOp::le, a, b); }
Tensor operator>(const Tensor& a, const Tensor& b) { return compare("gt", CompareOp::gt, a, b); }
Tensor operator>=(const Tensor& a, const Tensor& b) { return compare("ge", CompareOp::ge, a, b); }
Tensor operator==(const Tensor& a, Scalar b) { return compare(CompareOp::eq, a, b); }
Tensor operator!=(const Tensor& a, Scalar b) { return compare(CompareOp::ne, a, b); }
Tensor operator<(const Tensor& a, Scalar b) { return compare(CompareOp::lt, a, b); }
Tensor operator<=(const Tensor& a, Scalar b) { return compare(CompareOp::le, a, b); }
Tensor operator>(const Tensor& a, Scalar b) { return compare(CompareOp::gt, a, b); }
Tensor operator>=(const Tensor& a, Scalar b) { return compare(CompareOp::ge, a, b); }

Tensor logical_and(const Tensor& a, const Tensor& b) { return compare("logical_and", CompareOp::logical_and, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return compare("logical_or", CompareOp::logical_or, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return compare("logical_xor", CompareOp::logical_xor, a, b); }
Tensor logical_not(const Tensor& x) { return compare(CompareOp::eq, x, 0); }
namespace {

const Tensor& mask(const char* op, const Tensor& x) {
  check<DTypeError>(x.dtype() == DType::boolean, "{}: for bool masks only, got {}; compare it: x != 0", op, x.dtype());
  return x;
}

}  // namespace

Tensor operator&(const Tensor& a, const Tensor& b) { return logical_and(mask("&", a), mask("&", b)); }
Tensor operator|(const Tensor& a, const Tensor& b) { return logical_or(mask("|", a), mask("|", b)); }
Tensor operator^(const Tensor& a, const Tensor& b) { return logical_xor(mask("^", a), mask("^", b)); }
Tensor operator~(const Tensor& x) { return logical_not(mask("~", x)); }
Tensor isnan(const Tensor& x) { return compare("isnan", CompareOp::ne, x, x); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check<DTypeError>(condition.dtype() == DType::boolean,
                    "where: the condition must be bool, got {}; compare it: x != 0", condition.dtype());
  check_same_device("where", condition, a);
  check_same_device("where", a, b);
  if (a.dtype() != b.dtype()) {
    const DType dtype = result_type(a, b);
    return where(condition, a.to(dtype), b.to(dtype));
  }
  const Shape sizes = broadcast_shapes(broadcast_shapes(a.shape(), b.shape(), "where"), condition.shape(), "where");
  View out = detail::empty_view(sizes, a.dtype(), a.device(), format_of_result(sizes, {&a.raw(), &b.raw()}));
  detail::where(out, condition.raw(), a.raw(), b.raw());
  return record("where", std::move(out), {&a, &b}, [&] {
    return [condition = Saved(condition)](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor chosen = g.constant(condition);
        if (g.wants(0)) {
          g.give(0, where(chosen, g.output(), 0));
        }
        if (g.wants(1)) {
          g.give(1, where(chosen, 0, g.output()));
        }
      } else {
        const View& grad = g.output();
        const View zero = scalar_view(0, grad);
        for (const std::uint32_t i : {0u, 1u}) {
          if (g.wants(i)) {
            const View part = detail::empty_like(grad);
            detail::where(part, condition.get(g), i == 0 ? grad : zero, i == 0 ? zero : grad);
            const bool is_whole = g.input_sizes(i) == grad.sizes;
            const Destination to = g.destination(i, is_whole ? grad.memory_format() : MemoryFormat::contiguous);
            detail::sum_to(to.view, part, to.accumulate);
          }
        }
      }
    };
  });
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where(condition, a, full({}, b.value(), {.dtype = result_type(a, b), .device = a.device()}));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return where(condition, full({}, a.value(), {.dtype = result_type(b, a), .device = b.device()}), b);
}

Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  check<DTypeError>(mask.dtype() == DType::boolean, "masked_fill: the mask must be bool, got {}; compare it: mask != 0",
                    mask.dtype());
  const bool flag = dtype() == DType::boolean && is_bool(value.value());
  check<DTypeError>(flag || result_type(*this, value) == dtype(), "masked_fill: {} has no place for {}", dtype(),
                    value.value());
  return where(mask, flag ? Scalar(value.value() != 0) : value, *this);
}

}  // namespace tandem::inline v0
