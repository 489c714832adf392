#include <tandem/core/shape.h>

#include <ostream>

#include <algorithm>

#include <tandem/core/check.h>

namespace tandem::inline v0 {

Shape::Shape(std::span<const std::int64_t> sizes) : ndim_(static_cast<int>(sizes.size())) {
  if (sizes.size() > kMaxDims) {
    ndim_ = 0;
    fail<ShapeError>("a tensor has at most {} dimensions, got {}", kMaxDims, sizes.size());
  }
  std::copy(sizes.begin(), sizes.end(), values_);
}

int Shape::wrapped(int dim) const {
  check<ShapeError>(dim < 0 && dim >= -ndim_, "shape {} has no dimension {} [TDM-E110]", *this, dim);
  return dim + ndim_;
}

Shape Shape::filled(int ndim, std::int64_t value) {
  Shape shape;
  for (int i = 0; i < ndim; ++i) {
    shape.push_back(value);
  }
  return shape;
}

void Shape::push_back(std::int64_t value) {
  check<ShapeError>(ndim_ < kMaxDims, "a tensor has at most {} dimensions, got {}", kMaxDims, ndim_ + 1);
  values_[ndim_++] = value;
}

void Shape::insert(int position, std::int64_t value) {
  push_back(value);
  std::rotate(values_ + position, values_ + ndim_ - 1, values_ + ndim_);
}

void Shape::erase(int position) noexcept {
  std::copy(values_ + position + 1, values_ + ndim_, values_ + position);
  --ndim_;
}

std::int64_t Shape::numel() const {
  std::int64_t count = 1;
  bool overflow = false;
  bool zero = false;
  for (int i = 0; i < ndim_; ++i) {
    if (values_[i] < 0) [[unlikely]] {
      fail<ShapeError>("shape {} has a negative size", to_string(*this));
    }
    zero = zero || values_[i] == 0;
    overflow = __builtin_mul_overflow(count, values_[i], &count) || overflow;
  }
  if (zero) {
    return 0;
  }
  if (overflow) [[unlikely]] {
    fail<ShapeError>("shape {} has more elements than can be counted", to_string(*this));
  }
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.ndim(); ++i) {
    text += i == 0 ? "" : ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Shape contiguous_strides(const Shape& sizes) {
  Shape strides = sizes;
  std::uint64_t stride = 1;  // wraps around only in shapes without elements
  for (int i = sizes.ndim() - 1; i >= 0; --i) {
    strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[i], 1));
  }
  return strides;
}

Shape strides_of(const Shape& sizes, MemoryFormat format) {
  if (format == MemoryFormat::contiguous || sizes.ndim() != 4) {
    return contiguous_strides(sizes);
  }
  const Shape strides = contiguous_strides({sizes[0], sizes[2], sizes[3], sizes[1]});
  return {strides[0], strides[3], strides[1], strides[2]};
}

int wrap_dim(std::int64_t dim, int ndim, const char* op) {
  const int limit = std::max(ndim, 1);  // a scalar accepts 0 and -1, as in PyTorch
  if (dim < -limit || dim >= limit) [[unlikely]] {
    fail<ShapeError>("{}: dimension {} is out of range for a tensor with {} dimensions (expected {} to {}) [TDM-E110]",
                     op, dim, ndim, -limit, limit - 1);
  }
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

int wrap_new_dim(std::int64_t dim, int ndim, const char* op) {
  if (dim < -ndim - 1 || dim > ndim) [[unlikely]] {
    fail<ShapeError>("{}: dimension {} is out of range for a tensor with {} dimensions (expected {} to {}) [TDM-E110]",
                     op, dim, ndim, -ndim - 1, ndim);
  }
  return static_cast<int>(dim < 0 ? dim + ndim + 1 : dim);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  if (a == b) {
    return a;
  }
  const Shape& longer = a.ndim() >= b.ndim() ? a : b;
  const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.ndim(); ++i) {
    std::int64_t& size = result[result.ndim() - i];
    const std::int64_t other = shorter[shorter.ndim() - i];
    if (size == other || other == 1) {
      continue;
    }
    if (size != 1) [[unlikely]] {
      fail<ShapeError>(
          "{}: shapes {} and {} do not broadcast: sizes {} and {} at dimension {} differ and neither is 1 [TDM-E104]",
          op, to_string(a), to_string(b), a[a.ndim() - i], b[b.ndim() - i], -i);
    }
    size = other;
  }
  return result;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

}  // namespace tandem::inline v0
