#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/shape.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/frame.h>
#include <tandem/tensor/scalar.h>
#include <tandem/tensor/view.h>

namespace tandem::inline v0 {

class Tensor;

namespace detail {

/// Autograd's record of a tensor: its place in the graph. Opaque at this level.
class TANDEM_API History : public core::RefCounted {
 public:
  static void destroy(const History* history) noexcept;
  virtual bool is_leaf() const noexcept = 0;
  /// Called when the tensor of this leaf is destroyed.
  virtual void tensor_gone() noexcept {}

 protected:
  virtual ~History() = default;
  /// Releases the object's memory; the default is `delete`.
  virtual void dispose() const noexcept { delete this; }
};

struct TANDEM_API TensorImpl final : core::RefCounted {
  explicit TensorImpl(View v) noexcept : view(std::move(v)), history_version(view.storage->version()) {}
  static void destroy(const TensorImpl* impl) noexcept;
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory, std::size_t bytes) noexcept;

  View view;
  core::Ref<History> history;       // null: no gradient is requested
  core::Ref<History> frozen;        // history of a leaf while requires_grad is off: its name, hooks and place
  std::uint32_t output = 0;         // index of this tensor among the results of the history's op
  std::uint32_t history_version;    // the storage's version when `history` described the value
  bool is_slot = false;             // a parameter or buffer: a replica frame may substitute another tensor
  bool detached = false;            // by detach(): a constant, no matter how its elements change
  std::uint16_t registrations = 0;  // number of modules that list this slot
};

}  // namespace detail

/// Removes a gradient hook: keep the handle and call remove().
class TANDEM_API HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  /// Removes the hook; a second call does nothing.
  void remove();

 private:
  std::function<void()> remove_;
};

/// A multi-dimensional array on a device. A tensor is a handle: copies share the elements. Each tensor decides for
/// itself whether it takes part in the recorded graph (requires_grad). Names, defaults and argument order follow
/// PyTorch wherever the meaning is the same.
///
/// Thread safety: const use of a handle from many threads is safe; concurrent writes to one tensor are not.
/// Every op may throw ShapeError, DTypeError, DeviceError, OutOfMemory; the message names the op, the expected value
/// and the actual one.
class TANDEM_API Tensor {
 public:
  /// An undefined tensor: no elements, no shape. Only defined(), assignment and printing are allowed.
  Tensor() noexcept = default;
  /// Whether this handle refers to a tensor.
  bool defined() const noexcept { return static_cast<bool>(impl_); }
  Tensor(const Tensor&) noexcept = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// Makes this handle refer to another tensor. `x[0] = y` would change a temporary handle and does not compile;
  /// x[0].copy_(y) writes the elements.
  Tensor& operator=(const Tensor&) & noexcept = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  Tensor& operator=(const Tensor&) && = delete;  // write x[0].copy_(y)
  Tensor& operator=(Scalar) && = delete;         // write x[0].fill_(y)

  // ---- properties ----
  /// Size of each dimension.
  const Shape& shape() const { return get()->view.sizes; }
  /// Distance between neighbours along each dimension, in elements.
  const Shape& strides() const { return get()->view.strides; }
  /// Size of one dimension; a negative `dim` counts from the end.
  std::int64_t size(int dim) const;
  /// Number of dimensions.
  int dim() const { return shape().ndim(); }
  /// Number of elements.
  std::int64_t numel() const { return get()->view.numel(); }
  /// Type of the elements.
  DType dtype() const { return get()->view.dtype; }
  /// The device that holds the elements.
  Device device() const { return get()->view.device(); }
  /// Whether the elements lie in this format without gaps: row by row, or channels-last as contiguous() makes it.
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const {
    const detail::View& view = get()->view;
    return format == MemoryFormat::contiguous ? view.is_contiguous() : view.is_channels_last();
  }
  /// Grows with each in-place change of the storage.
  std::uint32_t version() const { return get()->view.storage->version(); }

  // ---- elements ----
  /// The first element. Throws DTypeError unless T is the element type. Use strides() to walk the elements, or span().
  template <class T>
  const T* data() const {
    return static_cast<const T*>(checked_data(dtype_of<T>));
  }
  /// The first element for writing; bumps the version, so autograd notices the change. Throws the errors of an in-place
  /// op if the tensor may not be written: it is expanded, or it is memory that a replica only reads.
  template <class T>
  T* mutable_data() {
    return static_cast<T*>(writable("mutable_data", checked_data(dtype_of<T>)));
  }
  /// All elements in row-major order, without a copy. Throws ShapeError when not contiguous.
  template <class T>
  std::span<const T> span() const {
    return {static_cast<const T*>(checked_dense(dtype_of<T>)), static_cast<std::size_t>(numel())};
  }
  /// All elements in row-major order for writing; bumps the version. Throws ShapeError if the tensor is not contiguous.
  template <class T>
  std::span<T> mutable_span() {
    T* first = static_cast<T*>(writable("mutable_span", checked_dense(dtype_of<T>)));
    return {first, static_cast<std::size_t>(numel())};
  }
  /// The value of a tensor with one element, converted to T. Throws ValueError if an integer T cannot hold the value; a
  /// fraction is dropped.
  template <class T = double>
  T item() const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<T>(item_int(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    } else {
      return static_cast<T>(item_double());
    }
  }
  /// All elements, in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;

  // ---- conversions ----
  /// Converts the elements as a C++ cast does; returns the same tensor if the dtype does not change. Differentiable
  /// between floating-point types.
  Tensor to(DType dtype) const;
  /// A copy on `device`, or the same tensor if it is there already. Differentiable. With `non_blocking`, a copy between
  /// a GPU and pinned memory is only queued on the current stream. Until the stream has reached it, do not change the
  /// source and do not read the result on the host.
  Tensor to(Device device, bool non_blocking = false) const;
  /// A dense copy in page-locked host memory, which a GPU can access directly; returns the same tensor if it is there
  /// already. No gradient flows through the copy. Throws DeviceError without a GPU, or for a tensor on a GPU.
  Tensor pin_memory() const;
  /// Whether the elements lie in page-locked host memory.
  bool is_pinned() const;
  /// Returns a tensor of the same elements if they lie in that format, else a dense copy. Differentiable.
  ///
  /// MemoryFormat::channels_last puts the channels of images on GPUs side by side. Shape, indices and values stay.
  /// Convolutions, batch norm, pooling and element-wise ops give a tensor of that format again, other ops a contiguous
  /// one. CPUs compute row by row, so that this is contiguous() there. Throws ShapeError unless the tensor is [batch,
  /// channels, height, width].
  Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// A dense copy in the same memory format. Differentiable.
  Tensor clone() const;
  /// A tensor on the same elements without history.
  Tensor detach() const;

  // ---- autograd (defined in autograd/) ----
  /// Whether backward() computes a gradient for this tensor.
  bool requires_grad() const { return static_cast<bool>(get()->history); }
  /// Requests gradients (leaves only), or freezes the tensor: later ops are not recorded for it, and its gradient is
  /// dropped, so optimisers leave it alone (PyTorch keeps the gradient and steps once more). A frozen leaf keeps its
  /// name, hooks and place in its optimiser until requires_grad_(true). Throws DTypeError for integers, AutogradError
  /// for results of ops.
  Tensor& requires_grad_(bool on = true);
  /// Whether the user made the tensor, rather than a recorded op.
  bool is_leaf() const;
  /// The accumulated gradient; undefined before the first backward pass and after zero_grad(). The result shares the
  /// leaf's gradient memory, which the next backward() overwrites: clone() a gradient to keep it.
  Tensor grad() const;
  /// Computes the gradients of all leaves on which this tensor depends. `gradient` is the gradient of this tensor; for
  /// a tensor with one element it may be omitted and is then 1. Frees the graph unless `retain_graph`. Throws
  /// AutogradError. A failed pass discards gradients that were only partly written and keeps those that were complete:
  /// call zero_grad() before trying again.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;
  /// Drops the gradient; its storage is kept for the next one.
  void zero_grad() const;
  /// Keeps the gradient of an op's result too, not only those of leaves.
  void retain_grad() const;
  /// Registers a hook: `fn` receives the complete gradient of this tensor and may return a replacement (or an undefined
  /// tensor for no change). The tensor keeps `fn`: a hook that captures the tensor itself by value keeps the tensor
  /// forever, a cycle that nothing frees. Capture a detach(), or remove() the hook.
  HookHandle register_hook(std::function<Tensor(const Tensor& grad)> fn) const;
  /// Registers a hook that runs when a backward pass has completed and stored this leaf's gradient. The hook receives
  /// the leaf; capturing the leaf by value would be a cycle, as in register_hook().
  HookHandle register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> fn) const;

  // ---- views: the same elements with another geometry. Differentiable ----
  /// A view where possible, else a copy; one size may be -1.
  Tensor reshape(const Shape& sizes) const;
  /// Like reshape(), but never copies: throws ShapeError instead.
  Tensor view(const Shape& sizes) const;
  /// Joins the dimensions from `start_dim` to `end_dim` into one; a view where possible.
  Tensor flatten(int start_dim = 0, int end_dim = -1) const;
  /// A view with two dimensions exchanged.
  Tensor transpose(int dim0, int dim1) const;
  /// The transpose of a matrix.
  Tensor t() const;
  /// A view whose dimension i is dimension order[i] of this tensor.
  Tensor permute(const Shape& order) const;
  /// Elements start, start + step, ... below `end`. Negative bounds count from the end; bounds out of range are
  /// clipped.
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  /// `length` elements from `start` on; a negative `start` counts from the end.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  /// One index of a dimension; the dimension is removed.
  Tensor select(int dim, std::int64_t index) const;
  /// select(0, index).
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  /// A view in which dimensions of size 1 have other sizes, without a copy; -1 keeps a size.
  Tensor expand(const Shape& sizes) const;
  /// Without dimension `dim`, if its size is 1; else the same geometry.
  Tensor squeeze(int dim) const;
  /// Without all dimensions of size 1.
  Tensor squeeze() const;
  /// With a new dimension of size 1 at `dim`.
  Tensor unsqueeze(int dim) const;
  /// Parts along a dimension, as views. The parts have `length` elements each (the last may be shorter), or the given
  /// `lengths`, or are `chunks` equal parts (fewer, with a shorter last one, if the size is not divisible; an empty
  /// dimension gives `chunks` empty parts).
  std::vector<Tensor> split(std::int64_t length, int dim = 0) const;
  /// Parts of the given lengths along a dimension, as views; together they are the whole.
  std::vector<Tensor> split(const std::vector<std::int64_t>& lengths, int dim = 0) const;
  /// `chunks` equal parts, as views; fewer, with a shorter last one, if the size is not divisible. An empty dimension
  /// gives `chunks` empty parts.
  std::vector<Tensor> chunk(std::int64_t chunks, int dim = 0) const;

  // ---- indexing: copies. Differentiable ----
  /// Rows `index` (i64 or i32, may repeat) along a dimension. An index without dimensions selects one row.
  Tensor index_select(int dim, const Tensor& index) const;
  /// out[i][j] = x[index[i][j]][j] for dim 0, x[i][index[i][j]] for dim 1, and so on. `index` (i64) has as many
  /// dimensions as x, and its sizes are at most those of x, except along `dim`.
  Tensor gather(int dim, const Tensor& index) const;
  /// A copy of x after out[index[i][j]][j] += source[i][j] (for dim 0, and so on). `index` covers a part of `source`.
  /// The order of the additions is fixed.
  Tensor scatter_add(int dim, const Tensor& index, const Tensor& source) const;
  /// The elements at which the bool `mask`, which broadcasts, is true, as one dimension.
  Tensor masked_select(const Tensor& mask) const;
  /// The positions of nonzero elements: i64 [count, dim()]. Not differentiable.
  Tensor nonzero() const;

  // ---- arithmetic, with broadcasting. Differentiable ----
  /// -x.
  Tensor neg() const;
  /// e^x.
  Tensor exp() const;
  /// exp(x) - 1, exact near 0.
  Tensor expm1() const;
  /// The natural logarithm; NaN below 0.
  Tensor log() const;
  /// log(1 + x), exact near 0.
  Tensor log1p() const;
  /// The square root; NaN below 0.
  Tensor sqrt() const;
  /// 1 / sqrt(x).
  Tensor rsqrt() const;
  /// The sine, of radians.
  Tensor sin() const;
  /// The cosine, of radians.
  Tensor cos() const;
  /// |x|; the gradient at 0 is 0.
  Tensor abs() const;
  /// -1, 0 or 1; the gradient is 0.
  Tensor sign() const;
  /// The largest whole number that is not above x.
  Tensor floor() const;
  /// The smallest whole number that is not below x.
  Tensor ceil() const;
  /// Rounds to the nearest whole number, ties to even.
  Tensor round() const;
  /// min(max(x, min), max); an infinite bound has no effect. A bound with a fraction turns integers into f32.
  Tensor clamp(double min, double max) const;
  /// x to the power of a number.
  Tensor pow(Scalar exponent) const;
  /// x to the power of another tensor, element by element, with broadcasting.
  Tensor pow(const Tensor& exponent) const;
  /// max(x, 0); NaN stays NaN, and the gradient at 0 is 0.
  Tensor relu() const;
  /// The hyperbolic tangent.
  Tensor tanh() const;
  /// 1 / (1 + e^-x).
  Tensor sigmoid() const;
  /// `value` wherever the bool `mask`, which broadcasts, is true. A bool tensor accepts the values 1 and 0.
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  /// [m, k] x [k, n], [k] x [k, n], [m, k] x [k] or [k] x [k].
  Tensor matmul(const Tensor& other) const;
  /// e^x divided by its sum along `dim`, without overflow.
  Tensor softmax(int dim) const;
  /// The logarithm of softmax(dim), exact where that is close to 0.
  Tensor log_softmax(int dim) const;

  // ---- reductions: over everything without dims (or with an empty list). Differentiable except argmax, any, all ----
  /// The sum of all elements; i64 for integers and bool.
  Tensor sum() const;
  /// Sums over `dims`, which remain with size 1 under `keepdim`.
  Tensor sum(const Shape& dims, bool keepdim = false) const;
  // Templates make {} an empty list of dims, never dim 0.
  /// The sums along one dimension.
  template <std::integral Dim>
  Tensor sum(Dim dim, bool keepdim = false) const {
    return sum(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// The mean of all elements; floating point only.
  Tensor mean() const;
  /// Means over `dims`.
  Tensor mean(const Shape& dims, bool keepdim = false) const;
  /// The means along one dimension.
  template <std::integral Dim>
  Tensor mean(Dim dim, bool keepdim = false) const {
    return mean(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// The largest of all elements; equal ones share the gradient. NaN wins.
  Tensor max() const { return amax(); }
  /// The smallest of all elements; equal ones share the gradient. NaN wins.
  Tensor min() const { return amin(); }
  /// The largest elements over `dims`; equal ones share the gradient.
  Tensor amax(const Shape& dims = {}, bool keepdim = false) const;
  /// The smallest elements over `dims`; equal ones share the gradient.
  Tensor amin(const Shape& dims = {}, bool keepdim = false) const;
  /// The largest elements along one dimension; equal ones share the gradient.
  template <std::integral Dim>
  Tensor amax(Dim dim, bool keepdim = false) const {
    return amax(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// The smallest elements along one dimension; equal ones share the gradient.
  template <std::integral Dim>
  Tensor amin(Dim dim, bool keepdim = false) const {
    return amin(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// The largest elements along one dimension; the first of equal ones gets the gradient. argmax(dim) gives positions.
  template <std::integral Dim>
  Tensor max(Dim dim, bool keepdim = false) const {
    return max_along(static_cast<std::int64_t>(dim), keepdim);
  }
  /// The smallest elements along one dimension; the first of equal ones gets the gradient. argmin(dim) gives positions.
  template <std::integral Dim>
  Tensor min(Dim dim, bool keepdim = false) const {
    return min_along(static_cast<std::int64_t>(dim), keepdim);
  }
  /// Sum of squared distances from the mean, divided by (count - correction). Correction 1 estimates from a sample;
  /// correction 0 is the variance of the data itself.
  Tensor var(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  /// The square root of var().
  Tensor std(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  /// The variances along one dimension.
  template <std::integral Dim>
  Tensor var(Dim dim, std::int64_t correction = 1, bool keepdim = false) const {
    return var(Shape{static_cast<std::int64_t>(dim)}, correction, keepdim);
  }
  /// The standard deviations along one dimension.
  template <std::integral Dim>
  Tensor std(Dim dim, std::int64_t correction = 1, bool keepdim = false) const {
    return std(Shape{static_cast<std::int64_t>(dim)}, correction, keepdim);
  }
  /// (sum |x|^p)^(1/p). Infinity gives the largest |x|; 0 counts the nonzero elements. The gradient of a norm of 0 is
  /// 0.
  Tensor norm(double p = 2, const Shape& dims = {}, bool keepdim = false) const;
  /// log(sum(exp(x))), computed without overflow.
  Tensor logsumexp(const Shape& dims, bool keepdim = false) const;
  /// log(sum(exp(x))) along one dimension.
  template <std::integral Dim>
  Tensor logsumexp(Dim dim, bool keepdim = false) const {
    return logsumexp(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// bool: whether any element over `dims` is nonzero.
  Tensor any(const Shape& dims = {}, bool keepdim = false) const;
  /// bool: whether every element over `dims` is nonzero; true for none.
  Tensor all(const Shape& dims = {}, bool keepdim = false) const;
  /// bool: whether any element along one dimension is nonzero.
  template <std::integral Dim>
  Tensor any(Dim dim, bool keepdim = false) const {
    return any(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// bool: whether every element along one dimension is nonzero.
  template <std::integral Dim>
  Tensor all(Dim dim, bool keepdim = false) const {
    return all(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// Cumulative sums along a dimension; i64 for integers and bool.
  Tensor cumsum(std::int64_t dim) const;
  /// i64 position of the first largest element, over everything or along a dimension.
  Tensor argmax(std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) const;
  /// i64 position of the first smallest element, over everything or along a dimension.
  Tensor argmin(std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) const;

  // ---- in place: under grad mode, recorded like the op of the same name ----
  /// Adds `other`, with broadcasting.
  Tensor& add_(const Tensor& other);
  /// Adds a number.
  Tensor& add_(Scalar value);
  /// Subtracts `other`, with broadcasting.
  Tensor& sub_(const Tensor& other);
  /// Subtracts a number.
  Tensor& sub_(Scalar value);
  /// Multiplies by `other`, with broadcasting.
  Tensor& mul_(const Tensor& other);
  /// Multiplies by a number.
  Tensor& mul_(Scalar value);
  /// Divides by `other`, with broadcasting.
  Tensor& div_(const Tensor& other);
  /// Divides by a number.
  Tensor& div_(Scalar value);
  /// Copies `source` with broadcasting and type conversion.
  Tensor& copy_(const Tensor& source);
  /// Sets all elements to a number.
  Tensor& fill_(Scalar value);
  /// Sets all elements to 0.
  Tensor& zero_();
  /// neg() in place.
  Tensor& neg_();
  /// exp() in place.
  Tensor& exp_();
  /// expm1() in place.
  Tensor& expm1_();
  /// log() in place.
  Tensor& log_();
  /// log1p() in place.
  Tensor& log1p_();
  /// sqrt() in place.
  Tensor& sqrt_();
  /// rsqrt() in place.
  Tensor& rsqrt_();
  /// sin() in place.
  Tensor& sin_();
  /// cos() in place.
  Tensor& cos_();
  /// abs() in place.
  Tensor& abs_();
  /// sign() in place.
  Tensor& sign_();
  /// floor() in place.
  Tensor& floor_();
  /// ceil() in place.
  Tensor& ceil_();
  /// round() in place.
  Tensor& round_();
  /// clamp() in place.
  Tensor& clamp_(double min, double max);
  /// pow() in place.
  Tensor& pow_(Scalar exponent);
  /// relu() in place.
  Tensor& relu_();
  /// tanh() in place.
  Tensor& tanh_();
  /// sigmoid() in place.
  Tensor& sigmoid_();
  /// masked_fill() in place.
  Tensor& masked_fill_(const Tensor& mask, Scalar value);
  /// scatter_add() in place.
  Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source);
  /// Draws all elements from [low, high). Throws AutogradError for values that require a gradient, except leaves under
  /// NoGradGuard.
  Tensor& uniform_(double low = 0, double high = 1);
  /// Draws all elements from a normal distribution. Throws like uniform_().
  Tensor& normal_(double mean = 0, double std = 1);

  // ---- for higher layers ----
  /// A handle to `impl`, which may be null.
  explicit Tensor(core::Ref<detail::TensorImpl> impl) noexcept : impl_(std::move(impl)) {}
  /// A tensor with this memory and geometry and without history.
  explicit Tensor(detail::View view);
  /// The tensor that this handle means on this thread: a slot is resolved through the replica frame. Throws if
  /// undefined.
  detail::TensorImpl* get() const {
    detail::TensorImpl* impl = impl_.get();
    if (impl == nullptr) [[unlikely]] {
      throw_undefined();
    }
    if (impl->is_slot) [[unlikely]] {
      if (const core::Frame* frame = core::thread_state().frame; frame != nullptr) {
        return static_cast<detail::TensorImpl*>(frame->resolve(impl));
      }
    }
    return impl;
  }
  /// The handle's own tensor, ignoring frames; it identifies a parameter.
  detail::TensorImpl* unresolved() const noexcept { return impl_.get(); }
  /// The memory and geometry of the tensor.
  const detail::View& raw() const { return get()->view; }

 private:
  [[noreturn]] static void throw_undefined();
  Tensor max_along(std::int64_t dim, bool keepdim) const;
  Tensor min_along(std::int64_t dim, bool keepdim) const;
  const void* checked_data(DType expected) const;
  const void* checked_dense(DType expected) const;
  void* writable(const char* op, const void* first);
  double item_double() const;
  std::int64_t item_int(std::int64_t low, std::uint64_t high) const;

  core::Ref<detail::TensorImpl> impl_;
};

/// Formats as NumPy and PyTorch do; long dimensions are shortened.
TANDEM_API std::string to_string(const Tensor& tensor);
/// Writes to_string(tensor).
TANDEM_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem::inline v0
