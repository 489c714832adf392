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

/// What autograd keeps for a tensor: its place in the graph. Opaque here.
class TANDEM_API History : public core::RefCounted {
 public:
  static void destroy(const History* history) noexcept;
  virtual bool is_leaf() const noexcept = 0;
  /// The tensor this is the leaf of is being destroyed.
  virtual void tensor_gone() noexcept {}

 protected:
  virtual ~History() = default;
  /// Gives the object's memory back; the default is `delete`.
  virtual void dispose() const noexcept { delete this; }
};

struct TANDEM_API TensorImpl final : core::RefCounted {
  explicit TensorImpl(View v) noexcept : view(std::move(v)), history_version(view.storage->version()) {}
  static void destroy(const TensorImpl* impl) noexcept;
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory, std::size_t bytes) noexcept;

  View view;
  core::Ref<History> history;       // null: no gradient is asked for
  core::Ref<History> frozen;        // a leaf's history while requires_grad is off: its name, hooks and place
  std::uint32_t output = 0;         // which result of the history's op this is
  std::uint32_t history_version;    // the storage's version when `history` described the value
  bool is_slot = false;             // a parameter or buffer: a replica frame may stand in another tensor
  bool detached = false;            // by detach(): a constant, whatever becomes of its elements
  std::uint16_t registrations = 0;  // how often modules list this slot
};

}  // namespace detail

/// How a gradient hook is taken off again: keep the handle and call remove().
class TANDEM_API HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  /// Takes the hook off; nothing happens the second time.
  void remove();

 private:
  std::function<void()> remove_;
};

/// A multi-dimensional array on a device: a handle that shares its elements when copied. Whether it takes part in the
/// recorded graph is its own business (requires_grad). Names, defaults and argument order are PyTorch's wherever the
/// meaning is the same.
///
/// Thread safety: const use of a handle from many threads is safe; concurrent writes to one tensor are not.
/// Every op may throw ShapeError, DTypeError, DeviceError, OutOfMemory; a message names op, expected and got.
class TANDEM_API Tensor {
 public:
  /// Undefined: no elements, no shape. Only defined(), assignment and printing are allowed.
  Tensor() noexcept = default;
  /// Whether there is a tensor behind this handle.
  bool defined() const noexcept { return static_cast<bool>(impl_); }
  Tensor(const Tensor&) noexcept = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// Makes this handle mean another tensor. `x[0] = y` would change a handle that nobody sees, and does not compile:
  /// x[0].copy_(y) writes the elements.
  Tensor& operator=(const Tensor&) & noexcept = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  Tensor& operator=(const Tensor&) && = delete;  // write x[0].copy_(y)
  Tensor& operator=(Scalar) && = delete;         // write x[0].fill_(y)

  // ---- what it is ----
  /// Size of each dimension.
  const Shape& shape() const { return get()->view.sizes; }
  /// Elements to step along each dimension.
  const Shape& strides() const { return get()->view.strides; }
  /// Size of one dimension; negative ones count from the end.
  std::int64_t size(int dim) const;
  /// Number of dimensions.
  int dim() const { return shape().ndim(); }
  /// Number of elements.
  std::int64_t numel() const { return get()->view.numel(); }
  /// Type of the elements.
  DType dtype() const { return get()->view.dtype; }
  /// Where the elements are.
  Device device() const { return get()->view.device(); }
  /// Whether the elements lie in row-major order without gaps.
  bool is_contiguous() const { return get()->view.is_contiguous(); }
  /// Grows with each change in place of the storage.
  std::uint32_t version() const { return get()->view.storage->version(); }

  // ---- elements ----
  /// First element. Throws DTypeError unless T is the element type. Walk with strides(), or ask for span().
  template <class T>
  const T* data() const {
    return static_cast<const T*>(checked_data(dtype_of<T>));
  }
  /// The same for writing; bumps the version, so that autograd notices. Throws as ops in place do where this tensor may
  /// not be written: it is expanded, or memory that a replica only reads.
  template <class T>
  T* mutable_data() {
    return static_cast<T*>(writable("mutable_data", checked_data(dtype_of<T>)));
  }
  /// All elements in row-major order, without a copy. Throws ShapeError when not contiguous.
  template <class T>
  std::span<const T> span() const {
    return {static_cast<const T*>(checked_dense(dtype_of<T>)), static_cast<std::size_t>(numel())};
  }
  /// The same for writing; bumps the version.
  template <class T>
  std::span<T> mutable_span() {
    T* first = static_cast<T*>(writable("mutable_span", checked_dense(dtype_of<T>)));
    return {first, static_cast<std::size_t>(numel())};
  }
  /// The value of a tensor with one element, converted to T. Throws ValueError when an integer T cannot hold it; a
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
  /// Elements converted as a C++ cast does; the same tensor when nothing changes. Differentiable between f32 and f64.
  Tensor to(DType dtype) const;
  /// A copy on `device`; the same tensor when it is there already. Differentiable. With `non_blocking` a copy between a
  /// GPU and pinned memory is only queued on the current stream: until that has got there, leave the source as it is,
  /// and don't read a result on the host.
  Tensor to(Device device, bool non_blocking = false) const;
  /// A dense copy in page-locked host memory, which a GPU copies to and from by itself; the same tensor when it is
  /// there already. No gradient flows through it. Throws DeviceError without a GPU, or for a tensor on one.
  Tensor pin_memory() const;
  /// Whether the elements are in page-locked host memory.
  bool is_pinned() const;
  /// The same tensor if it is contiguous, else a dense copy. Differentiable.
  Tensor contiguous() const;
  /// A dense copy. Differentiable.
  Tensor clone() const;
  /// The same elements without history.
  Tensor detach() const;

  // ---- autograd (defined in autograd/) ----
  /// Whether backward() computes a gradient for it.
  bool requires_grad() const { return static_cast<bool>(get()->history); }
  /// Asks for gradients (leaves only), or freezes: what comes after is not recorded, and the gradient is dropped, so
  /// that optimisers leave it alone (PyTorch keeps it, and steps once more). Name, hooks and place in its optimiser
  /// wait for requires_grad_(true). Throws DTypeError for integers, AutogradError for results of ops.
  Tensor& requires_grad_(bool on = true);
  /// Made by the user, not by a recorded op.
  bool is_leaf() const;
  /// The accumulated gradient; undefined before the first backward and after zero_grad. It shares the leaf's gradient
  /// memory, which the next backward() writes again: clone() what should stay.
  Tensor grad() const;
  /// Fills the gradients of all leaves this depends on. `gradient` is that of this tensor and may be left out when it
  /// has one element (1 then). Frees the graph unless `retain_graph`. Throws AutogradError; of a failed pass,
  /// gradients that were half written are forgotten, and those that were complete already stay: zero_grad() before
  /// trying again.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;
  /// Forgets the gradient; its storage is kept for the next one.
  void zero_grad() const;
  /// Keeps the gradient of a result of an op as well.
  void retain_grad() const;
  /// fn sees the complete gradient of this tensor and may return another (or an undefined tensor: unchanged). The
  /// tensor keeps fn: an fn that captures the tensor itself by value keeps it for ever, a cycle that nothing frees.
  /// Capture a detach(), or remove() the hook.
  HookHandle register_hook(std::function<Tensor(const Tensor& grad)> fn) const;
  /// fn runs when this leaf's gradient of one backward pass is complete and in place. It is handed the leaf: capturing
  /// it by value would be a cycle, as above.
  HookHandle register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> fn) const;

  // ---- views: same elements, other geometry. Differentiable ----
  /// A view where possible, else a copy; one size may be -1.
  Tensor reshape(const Shape& sizes) const;
  /// As reshape, but never copies: throws ShapeError instead.
  Tensor view(const Shape& sizes) const;
  Tensor flatten(int start_dim = 0, int end_dim = -1) const;
  Tensor transpose(int dim0, int dim1) const;
  /// The transpose of a matrix.
  Tensor t() const;
  Tensor permute(const Shape& order) const;
  /// Elements start, start + step, ... below end; negative bounds count from the end, bounds beyond are clipped.
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  /// `length` elements from start on; a negative start counts from the end.
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  /// One index of a dimension, which goes away.
  Tensor select(int dim, std::int64_t index) const;
  /// select(0, index).
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor expand(const Shape& sizes) const;
  Tensor squeeze(int dim) const;
  Tensor squeeze() const;
  Tensor unsqueeze(int dim) const;
  /// Parts along a dimension, as views: of `length` each (the last may be shorter), of these lengths, or `chunks` of
  /// equal length (fewer, and the last shorter, where they don't go in; of nothing, as many empty ones).
  std::vector<Tensor> split(std::int64_t length, int dim = 0) const;
  std::vector<Tensor> split(const std::vector<std::int64_t>& lengths, int dim = 0) const;
  std::vector<Tensor> chunk(std::int64_t chunks, int dim = 0) const;

  // ---- by index: copies. Differentiable ----
  /// Rows `index` (i64 or i32, may repeat) along a dimension; an index without dimensions is one row.
  Tensor index_select(int dim, const Tensor& index) const;
  /// out[i][j] = x[index[i][j]][j] for dim 0, x[i][index[i][j]] for dim 1, and so on. `index` (i64) has as many
  /// dimensions as x and no larger sizes but along `dim`.
  Tensor gather(int dim, const Tensor& index) const;
  /// A copy to which out[index[i][j]][j] += source[i][j] was done, for dim 0, and so on; `index` covers a part of
  /// `source`. In a fixed order.
  Tensor scatter_add(int dim, const Tensor& index, const Tensor& source) const;
  /// The elements where the bool `mask`, which broadcasts, holds: one dimension.
  Tensor masked_select(const Tensor& mask) const;
  /// Positions of what is not 0: i64 [count, dim()]. Not differentiable.
  Tensor nonzero() const;

  // ---- arithmetic, with broadcasting. Differentiable ----
  Tensor neg() const;
  Tensor exp() const;
  /// exp(x) - 1, exact near 0.
  Tensor expm1() const;
  Tensor log() const;
  Tensor log1p() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor abs() const;
  Tensor sign() const;
  Tensor floor() const;
  Tensor ceil() const;
  /// To the nearest whole number, ties to even.
  Tensor round() const;
  /// min(max(x, min), max); an infinite limit is none. Fractions among the limits make integers f32.
  Tensor clamp(double min, double max) const;
  Tensor pow(Scalar exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor relu() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  /// `value` where the bool `mask`, which broadcasts, holds; 1 and 0 go into a bool tensor, too.
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  /// [m, k] x [k, n], [k] x [k, n], [m, k] x [k] or [k] x [k].
  Tensor matmul(const Tensor& other) const;
  Tensor softmax(int dim) const;
  Tensor log_softmax(int dim) const;

  // ---- reductions; without dims (or an empty list) over everything. Differentiable, but for argmax, any and all ----
  Tensor sum() const;
  Tensor sum(const Shape& dims, bool keepdim = false) const;
  // Templates, so that {} is an empty list of dims and never the dim 0.
  template <std::integral Dim>
  Tensor sum(Dim dim, bool keepdim = false) const {
    return sum(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  Tensor mean() const;
  Tensor mean(const Shape& dims, bool keepdim = false) const;
  template <std::integral Dim>
  Tensor mean(Dim dim, bool keepdim = false) const {
    return mean(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// The extreme value of all. Equal ones share the gradient.
  Tensor max() const { return amax(); }
  Tensor min() const { return amin(); }
  Tensor amax(const Shape& dims = {}, bool keepdim = false) const;
  Tensor amin(const Shape& dims = {}, bool keepdim = false) const;
  template <std::integral Dim>
  Tensor amax(Dim dim, bool keepdim = false) const {
    return amax(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  template <std::integral Dim>
  Tensor amin(Dim dim, bool keepdim = false) const {
    return amin(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// Along one dimension; the first of equal ones gets the gradient. Where they are: argmax(dim).
  template <std::integral Dim>
  Tensor max(Dim dim, bool keepdim = false) const {
    return max_along(static_cast<std::int64_t>(dim), keepdim);
  }
  template <std::integral Dim>
  Tensor min(Dim dim, bool keepdim = false) const {
    return min_along(static_cast<std::int64_t>(dim), keepdim);
  }
  /// Sum of squared distances from the mean over (count - correction); 1 estimates from a sample, 0 is the data's own.
  Tensor var(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  Tensor std(const Shape& dims = {}, std::int64_t correction = 1, bool keepdim = false) const;
  template <std::integral Dim>
  Tensor var(Dim dim, std::int64_t correction = 1, bool keepdim = false) const {
    return var(Shape{static_cast<std::int64_t>(dim)}, correction, keepdim);
  }
  template <std::integral Dim>
  Tensor std(Dim dim, std::int64_t correction = 1, bool keepdim = false) const {
    return std(Shape{static_cast<std::int64_t>(dim)}, correction, keepdim);
  }
  /// (sum |x|^p)^(1/p); infinity: the largest |x|, 0: how many are not 0. The gradient of a norm of 0 is 0.
  Tensor norm(double p = 2, const Shape& dims = {}, bool keepdim = false) const;
  /// log(sum(exp(x))), without overflow.
  Tensor logsumexp(const Shape& dims, bool keepdim = false) const;
  template <std::integral Dim>
  Tensor logsumexp(Dim dim, bool keepdim = false) const {
    return logsumexp(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// bool: whether some element, or each, is not 0.
  Tensor any(const Shape& dims = {}, bool keepdim = false) const;
  Tensor all(const Shape& dims = {}, bool keepdim = false) const;
  template <std::integral Dim>
  Tensor any(Dim dim, bool keepdim = false) const {
    return any(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  template <std::integral Dim>
  Tensor all(Dim dim, bool keepdim = false) const {
    return all(Shape{static_cast<std::int64_t>(dim)}, keepdim);
  }
  /// Sums of the elements so far along a dimension; i64 for integers and bool.
  Tensor cumsum(std::int64_t dim) const;
  /// i64 position of the first maximum or minimum, over everything or along a dimension.
  Tensor argmax(std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) const;
  Tensor argmin(std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) const;

  // ---- in place; under grad mode they are recorded like the op they are named after ----
  Tensor& add_(const Tensor& other);
  Tensor& add_(Scalar value);
  Tensor& sub_(const Tensor& other);
  Tensor& sub_(Scalar value);
  Tensor& mul_(const Tensor& other);
  Tensor& mul_(Scalar value);
  Tensor& div_(const Tensor& other);
  Tensor& div_(Scalar value);
  /// Broadcasts and converts.
  Tensor& copy_(const Tensor& source);
  Tensor& fill_(Scalar value);
  Tensor& zero_();
  Tensor& neg_();
  Tensor& exp_();
  Tensor& expm1_();
  Tensor& log_();
  Tensor& log1p_();
  Tensor& sqrt_();
  Tensor& rsqrt_();
  Tensor& sin_();
  Tensor& cos_();
  Tensor& abs_();
  Tensor& sign_();
  Tensor& floor_();
  Tensor& ceil_();
  Tensor& round_();
  Tensor& clamp_(double min, double max);
  Tensor& pow_(Scalar exponent);
  Tensor& relu_();
  Tensor& tanh_();
  Tensor& sigmoid_();
  Tensor& masked_fill_(const Tensor& mask, Scalar value);
  Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source);
  /// Overwrites with draws from [low, high), or normal ones; not on values that require a gradient, but for leaves
  /// under NoGradGuard.
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double std = 1);

  // ---- for the layers above ----
  /// A handle to what is there; may be null.
  explicit Tensor(core::Ref<detail::TensorImpl> impl) noexcept : impl_(std::move(impl)) {}
  /// A tensor with this memory and geometry, without history.
  explicit Tensor(detail::View view);
  /// The tensor this handle means on this thread: a slot resolved through the replica frame. Throws when undefined.
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
  /// This handle's own tensor, frames or not: identity of parameters.
  detail::TensorImpl* unresolved() const noexcept { return impl_.get(); }
  /// Its memory and geometry.
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

/// As NumPy and PyTorch print; long dimensions are shortened.
TANDEM_API std::string to_string(const Tensor& tensor);
/// Writes to_string(tensor).
TANDEM_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem::inline v0
