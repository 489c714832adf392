#include <tandem/tensor/view.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::detail {

bool View::lies_channels_last() const noexcept {
  if (sizes.ndim() != 4) {
    return false;
  }
  std::uint64_t expected = 1;  // may wrap around before a size of 0 is reached
  for (const int dim : {1, 3, 2, 0}) {
    if (sizes[dim] != 1 && static_cast<std::uint64_t>(strides[dim]) != expected) {
      return numel() == 0;
    }
    expected *= static_cast<std::uint64_t>(sizes[dim]);
  }
  return true;
}

bool View::is_contiguous_slow() const noexcept {
  std::uint64_t expected = 1;  // may wrap around before a size of 0 is reached
  for (int dim = sizes.ndim() - 1; dim >= 0; --dim) {
    if (sizes[dim] == 0) {
      return true;
    }
    if (sizes[dim] != 1 && static_cast<std::uint64_t>(strides[dim]) != expected) {
      return numel() == 0;
    }
    expected *= static_cast<std::uint64_t>(sizes[dim]);
  }
  return true;
}

void check_writable(const char* op, const View& out) {
  check<AutogradError>(!out.storage->is_alias(),
                       "{}: {} on {} is memory of {} that a replica only reads; change a copy (.clone()), or keep what "
                       "changes in a buffer of the module",
                       op, out.sizes, out.device(),
                       out.storage->is_alias() ? out.storage->parent()->device() : out.device());
  for (int dim = 0; dim < out.sizes.ndim(); ++dim) {
    check<ShapeError>(out.strides[dim] != 0 || out.sizes[dim] <= 1,
                      "{}: the tensor {} is expanded, several of its elements share memory; call .clone() first", op,
                      out.sizes);
  }
}

View seen_from(Device device, const View& view) {
  if (view.device() == device) {
    return view;
  }
  View seen = view;
  seen.storage = Storage::alias(view.storage, device);
  return seen;
}

View permute(const View& view, const Shape& order) {
  const int ndim = view.sizes.ndim();
  check<ShapeError>(order.ndim() == ndim, "permute: the order {} has {} entries, the tensor {} dimensions", order,
                    order.ndim(), ndim);
  View result = view;
  bool used[kMaxDims] = {};
  for (int i = 0; i < ndim; ++i) {
    const int dim = wrap_dim(order[i], ndim, "permute");
    check<ShapeError>(!used[dim], "permute: dimension {} appears twice in {}", dim, order);
    used[dim] = true;
    result.sizes[i] = view.sizes[dim];
    result.strides[i] = view.strides[dim];
  }
  return result;
}

View transpose(const View& view, int dim0, int dim1) {
  const int ndim = view.sizes.ndim();
  dim0 = wrap_dim(dim0, ndim, "transpose");
  dim1 = wrap_dim(dim1, ndim, "transpose");
  View result = view;
  if (ndim > 0) {
    std::swap(result.sizes[dim0], result.sizes[dim1]);
    std::swap(result.strides[dim0], result.strides[dim1]);
  }
  return result;
}

View narrow(const View& view, int dim, std::int64_t start, std::int64_t length, std::int64_t step) {
  check<ShapeError>(view.sizes.ndim() > 0, "narrow: a scalar has no dimension to narrow");
  dim = wrap_dim(dim, view.sizes.ndim(), "narrow");
  const std::int64_t size = view.sizes[dim];
  const std::int64_t first = start < 0 ? start + size : start;
  const bool fits = step >= 1 && length >= 0 && first >= 0 && first <= size &&
                    (length == 0 || length - 1 <= (size - 1 - first) / step) && (length == 0 || first < size);
  check<ShapeError>(fits, "narrow: start {} and length {} leave dimension {} of {} [TDM-E109]", start, length, dim,
                    view.sizes);
  View result = view;
  result.offset += first * view.strides[dim];
  result.sizes[dim] = length;
  if (length > 1) {  // with one element or none, the step is never taken
    result.strides[dim] *= step;
  }
  return result;
}

View select(const View& view, int dim, std::int64_t index) {
  check<ShapeError>(view.sizes.ndim() > 0, "select: a scalar has no dimension to select from");
  dim = wrap_dim(dim, view.sizes.ndim(), "select");
  const std::int64_t size = view.sizes[dim];
  check<ShapeError>(index >= -size && index < size,
                    "select: index {} is out of range for dimension {} of {}: expected {} to {} [TDM-E109]", index, dim,
                    view.sizes, -size, size - 1);
  View result = view;
  result.offset += (index < 0 ? index + size : index) * view.strides[dim];
  result.sizes.erase(dim);
  result.strides.erase(dim);
  return result;
}

View squeeze(const View& view, int dim) {
  dim = wrap_dim(dim, view.sizes.ndim(), "squeeze");
  View result = view;
  if (view.sizes.ndim() > 0 && view.sizes[dim] == 1) {
    result.sizes.erase(dim);
    result.strides.erase(dim);
  }
  return result;
}

View unsqueeze(const View& view, int dim) {
  dim = wrap_new_dim(dim, view.sizes.ndim(), "unsqueeze");
  View result = view;
  const std::int64_t stride = dim < view.sizes.ndim() ? view.sizes[dim] * view.strides[dim] : 1;
  result.sizes.insert(dim, 1);
  result.strides.insert(dim, stride);
  return result;
}

View expand(const View& view, const Shape& sizes) {
  const int added = sizes.ndim() - view.sizes.ndim();
  check<ShapeError>(added >= 0, "expand: {} has fewer dimensions than the tensor's {}", sizes, view.sizes);
  View result = view;
  result.sizes = sizes;
  result.strides = Shape::filled(sizes.ndim(), 0);
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    const std::int64_t old = dim < added ? 1 : view.sizes[dim - added];
    if (sizes[dim] == -1 && dim >= added) {
      result.sizes[dim] = old;
    }
    check<ShapeError>(result.sizes[dim] != -1, "expand: {} cannot become {}: there is no size to keep at dimension {}",
                      view.sizes, sizes, dim);
    check<ShapeError>(result.sizes[dim] >= 0 && (old == 1 || old == result.sizes[dim]),
                      "expand: {} cannot become {}: size {} at dimension {} is neither 1 nor {} [TDM-E104]", view.sizes,
                      sizes, old, dim, sizes[dim]);
    if (dim >= added && old == result.sizes[dim]) {
      result.strides[dim] = view.strides[dim - added];
    }
  }
  result.sizes.numel();  // throws if the number of elements overflows
  return result;
}

Shape infer_shape(const View& view, const Shape& sizes, const char* op) {
  Shape result = sizes;
  int unknown = -1;
  std::int64_t known = 1;
  bool overflow = false;
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    if (sizes[dim] == -1) {
      check<ShapeError>(unknown < 0, "{}: only one size of {} can be -1", op, sizes);
      unknown = dim;
      continue;
    }
    check<ShapeError>(sizes[dim] >= 0, "{}: {} has a negative size", op, sizes);
    overflow = __builtin_mul_overflow(known, sizes[dim], &known) || overflow;
  }
  const std::int64_t numel = view.numel();
  if (unknown >= 0 && known > 0 && !overflow) {
    result[unknown] = numel / known;
    known *= result[unknown];
  }
  check<ShapeError>(!overflow && known == numel && (unknown < 0 || result[unknown] >= 0),
                    "{}: {} with {} elements cannot become {} [TDM-E106]", op, view.sizes, numel, sizes);
  return result;
}

std::optional<View> try_reshape(const View& view, const Shape& sizes) {
  View result = view;
  result.sizes = sizes;
  if (view.is_contiguous()) {
    result.strides = contiguous_strides(sizes);
    return result;
  }
  // Both shapes are walked from the back: a run of old dimensions that is dense in itself can be divided differently.
  result.strides = sizes;
  int new_dim = sizes.ndim() - 1;
  int old_dim = view.sizes.ndim() - 1;
  while (old_dim >= 0) {
    std::int64_t run = view.sizes[old_dim];
    const std::int64_t base = view.strides[old_dim];
    std::int64_t next = base * view.sizes[old_dim];
    while (old_dim > 0 && (view.sizes[old_dim - 1] == 1 || view.strides[old_dim - 1] == next)) {
      --old_dim;
      run *= view.sizes[old_dim];
      next *= view.sizes[old_dim];
    }
    std::int64_t covered = 1;
    while (new_dim >= 0 && (covered < run || sizes[new_dim] == 1)) {
      result.strides[new_dim] = base * covered;
      covered *= sizes[new_dim];
      --new_dim;
    }
    if (covered != run) {
      return std::nullopt;
    }
    --old_dim;
  }
  if (new_dim >= 0) {
    return std::nullopt;
  }
  return result;
}

}  // namespace tandem::inline v0::detail
