#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// The largest number of dimensions a tensor can have.
inline constexpr int kMaxDims = 8;

/// Sizes (or strides) of a tensor, held in place: making one never allocates.
class TANDEM_API Shape {
 public:
  Shape() noexcept : ndim_(0) {}  // leaves the sizes unset: to clear them is a tenth of a small step
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  /// Throws ShapeError beyond kMaxDims.
  explicit Shape(std::span<const std::int64_t> sizes);
  Shape(const std::vector<std::int64_t>& sizes) : Shape(std::span(sizes)) {}
  /// `ndim` entries of `value`.
  static Shape filled(int ndim, std::int64_t value);

  /// Number of dimensions.
  int ndim() const noexcept { return ndim_; }
  /// Number of dimensions.
  std::size_t size() const noexcept { return static_cast<std::size_t>(ndim_); }
  /// Whether the shape has no dimensions, as for a scalar.
  bool empty() const noexcept { return ndim_ == 0; }
  /// Size of one dimension; a negative `dim` counts from the end. Throws ShapeError if the dimension does not exist.
  std::int64_t operator[](int dim) const { return values_[place_of(dim)]; }
  std::int64_t& operator[](int dim) { return values_[place_of(dim)]; }
  /// The sizes in order.
  const std::int64_t* begin() const noexcept { return values_; }
  /// The end of the sizes.
  const std::int64_t* end() const noexcept { return values_ + ndim_; }
  /// The last size; the shape must not be empty.
  std::int64_t back() const noexcept { return values_[ndim_ - 1]; }

  /// Appends a dimension. Throws ShapeError beyond kMaxDims.
  void push_back(std::int64_t value);
  /// Inserts a dimension at `position`, in [0, ndim()]. Throws ShapeError beyond kMaxDims.
  void insert(int position, std::int64_t value);
  /// Removes the dimension at `position`, which must exist.
  void erase(int position) noexcept;

  /// Product of the sizes; 1 for a scalar. Throws ShapeError if the product does not fit into 63 bits or a size is
  /// negative.
  std::int64_t numel() const;

  /// Whether both have equal sizes in equal order.
  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.ndim_ != b.ndim_) {
      return false;
    }
    for (int i = 0; i < a.ndim_; ++i) {
      if (a.values_[i] != b.values_[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  int place_of(int dim) const { return static_cast<unsigned>(dim) < static_cast<unsigned>(ndim_) ? dim : wrapped(dim); }
  int wrapped(int dim) const;

  std::int64_t values_[kMaxDims];  // the first ndim_ are set
  int ndim_;
};

/// "[32, 784]"; "[]" for a scalar.
TANDEM_API std::string to_string(const Shape& shape);
/// Writes to_string(shape).
TANDEM_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Strides, in elements, of a dense row-major tensor.
TANDEM_API Shape contiguous_strides(const Shape& sizes);

/// The order in which the elements of a dense tensor lie, as torch.memory_format.
enum class MemoryFormat : std::uint8_t {
  contiguous,     // row by row; images are [batch, channels, height, width]
  channels_last,  // images lie as [batch, height, width, channels], whatever the order of their dimensions
};

/// Strides, in elements, of a dense tensor. Tensors of other than four dimensions are always contiguous.
TANDEM_API Shape strides_of(const Shape& sizes, MemoryFormat format);

/// Converts a dimension that may count from the end to one that counts from the front. Throws ShapeError naming `op`.
TANDEM_API int wrap_dim(std::int64_t dim, int ndim, const char* op);

/// Converts the position of a new dimension among `ndim` existing ones: 0 to ndim, or -1 - ndim to -1.
TANDEM_API int wrap_new_dim(std::int64_t dim, int ndim, const char* op);

/// The shape to which two operands broadcast (NumPy's rule). Throws ShapeError naming `op` and both shapes.
TANDEM_API Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

}  // namespace tandem::inline v0
