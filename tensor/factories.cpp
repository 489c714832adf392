#include <tandem/tensor/factories.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/kernels/fill.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/random.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0 {

namespace {

void check_sizes(const char* op, const Shape& sizes) {
  check<ShapeError>(std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size >= 0; }),
                    "{}: shape {} has a negative size", op, sizes);
}

Tensor make(const char* op, const Shape& sizes, const TensorOptions& options) {
  check_sizes(op, sizes);
  return Tensor(detail::empty_view(sizes, options.dtype.value_or(DType::f32),
                                   options.device.value_or(core::thread_state().device)));
}

TensorOptions like(const Tensor& tensor) { return {.dtype = tensor.dtype(), .device = tensor.device()}; }

void check_fits(const char* op, DType dtype, double value) {
  check<DTypeError>(detail::fits(dtype, value), "{}: {} does not fit into {}", op, value, dtype);
}

// Whether an element of type Out can hold `value`.
template <class Out, class In>
bool holds(In value) {
  if constexpr (!std::is_integral_v<Out> || std::is_same_v<Out, bool> || std::is_same_v<In, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<In>) {
    return std::in_range<Out>(value);
  } else {
    return detail::fits(dtype_of<Out>, static_cast<double>(static_cast<ComputeType<In>>(value)));
  }
}

// out = in, with the conversion of a copy. Throws at the first value that Out cannot hold.
template <class Out, class In>
void convert_all(const char* op, const Shape& sizes, Out* out, const In* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!holds<Out>(in[i])) [[unlikely]] {
      fail<DTypeError>("{}: {} does not fit into {}{}", op, static_cast<ComputeType<In>>(in[i]), dtype_of<Out>,
                       sizes.empty() ? "" : fmt::format(" (element {})", i));
    }
    out[i] = kernels::convert<Out>(in[i]);
  }
}

Tensor finish(Tensor tensor, const TensorOptions& options) {
  if (options.requires_grad) {
    tensor.requires_grad_();
  }
  return tensor;
}

Tensor filled(const char* op, const Shape& sizes, double value, const TensorOptions& options) {
  Tensor tensor = make(op, sizes, options);
  detail::fill(tensor.raw(), value);
  return finish(std::move(tensor), options);
}

void draw(const Tensor& tensor, kernels::Distribution distribution, double low, double high) {
  const detail::View& out = tensor.raw();
  const detail::View dense = out.is_contiguous() ? out : detail::empty_view(out.sizes, out.dtype, out.device());
  Generator& generator = current_generator();
  const std::int64_t count = out.numel();
  kernels::launch(detail::context_of(dense),
                  kernels::RandomFill{.distribution = distribution,
                                      .dtype = out.dtype,
                                      .out = dense.data(),
                                      .count = count,
                                      .low = low,
                                      .high = high,
                                      .seed = generator.seed(),
                                      .offset = generator.reserve(static_cast<std::uint64_t>((count + 1) / 2)),
                                      .state = generator.state()});
  if (dense.storage != out.storage) {
    detail::copy(out, dense);
  }
}

void require_floating(const Tensor& tensor, const char* op) {
  check<DTypeError>(is_floating_point(tensor.dtype()), "{}: needs floating point, got {}", op, tensor.dtype());
}

// The range [low, high) of whole numbers that a type holds exactly; for 64-bit types, limited to those of a double.
std::pair<std::int64_t, std::int64_t> whole_range(DType dtype) {
  constexpr std::int64_t kExact32 = std::int64_t{1} << 24;
  constexpr std::int64_t kExact64 = std::int64_t{1} << 53;
  switch (dtype) {
    case DType::boolean: return {0, 2};
    case DType::u8: return {0, 256};
    case DType::i32: return {INT32_MIN, std::int64_t{INT32_MAX} + 1};
    case DType::f32: return {-kExact32, kExact32 + 1};
    case DType::bf16: return {-256, 257};
    case DType::f16: return {-2048, 2049};
    case DType::f64:
    case DType::i64: break;
  }
  return {-kExact64, kExact64};
}

// A random in-place draw on a tensor with recorded history would make that history wrong.
void require_drawable(const Tensor& tensor, const char* op) {
  require_floating(tensor, op);
  check<AutogradError>(!core::thread_state().grad_enabled || !tensor.requires_grad(),
                       "{}: the tensor requires a gradient; do this under NoGradGuard [TDM-E205]", op);
  detail::check_writable(op, tensor.raw());
}

}  // namespace

Tensor empty(const Shape& sizes, const TensorOptions& options) {
  return finish(make("empty", sizes, options), options);
}
Tensor full(const Shape& sizes, double value, const TensorOptions& options) {
  return filled("full", sizes, value, options);
}
Tensor zeros(const Shape& sizes, const TensorOptions& options) { return filled("zeros", sizes, 0, options); }
Tensor ones(const Shape& sizes, const TensorOptions& options) { return filled("ones", sizes, 1, options); }

Tensor empty_like(const Tensor& tensor) { return empty(tensor.shape(), like(tensor)); }
Tensor zeros_like(const Tensor& tensor) { return zeros(tensor.shape(), like(tensor)); }
Tensor ones_like(const Tensor& tensor) { return ones(tensor.shape(), like(tensor)); }
Tensor full_like(const Tensor& tensor, double value) { return full(tensor.shape(), value, like(tensor)); }
Tensor rand_like(const Tensor& tensor) { return rand(tensor.shape(), like(tensor)); }
Tensor randn_like(const Tensor& tensor) { return randn(tensor.shape(), like(tensor)); }

Tensor linspace(double start, double end, std::int64_t steps, const TensorOptions& options) {
  check<ConfigError>(steps >= 0, "linspace: the number of steps is {}, it must not be negative", steps);
  check<ConfigError>(std::isfinite(start) && std::isfinite(end), "linspace: {} to {} must be finite", start, end);
  Tensor tensor = make("linspace", {steps}, options);
  check<DTypeError>(tensor.dtype() != DType::boolean, "linspace: not defined for bool");
  if (steps > 0) {
    check_fits("linspace", tensor.dtype(), start);
    check_fits("linspace", tensor.dtype(), steps > 1 ? end : start);
  }
  kernels::launch(detail::context_of(tensor.raw()),
                  kernels::Linspace{
                      .dtype = tensor.dtype(), .out = tensor.raw().data(), .count = steps, .start = start, .end = end});
  return finish(std::move(tensor), options);
}

Tensor eye(std::int64_t n, const TensorOptions& options) {
  Tensor tensor = make("eye", {n, n}, options);
  detail::fill(tensor.raw(), 0);
  detail::View diagonal = tensor.raw();
  diagonal.sizes = {n};
  diagonal.strides = {n + 1};
  detail::fill(diagonal, 1);
  return finish(std::move(tensor), options);
}

Tensor rand(const Shape& sizes, const TensorOptions& options) {
  Tensor tensor = make("rand", sizes, options);
  require_floating(tensor, "rand");
  draw(tensor, kernels::Distribution::uniform, 0, 1);
  return finish(std::move(tensor), options);
}

Tensor randn(const Shape& sizes, const TensorOptions& options) {
  Tensor tensor = make("randn", sizes, options);
  require_floating(tensor, "randn");
  draw(tensor, kernels::Distribution::normal, 0, 1);
  return finish(std::move(tensor), options);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(DType::i64);
  check<ConfigError>(low < high, "randint: [{}, {}) is empty", low, high);
  // Bounds are passed as doubles and would lose digits beyond 2^53.
  const auto [lowest, highest] = whole_range(dtype);
  check<ConfigError>(low >= lowest && high <= highest, "randint: [{}, {}) is not inside [{}, {}), what {} can draw",
                     low, high, lowest, highest, dtype);
  Tensor tensor = make("randint", sizes, {.dtype = dtype, .device = options.device});
  draw(tensor, kernels::Distribution::integer, static_cast<double>(low), static_cast<double>(high));
  return finish(std::move(tensor), options);
}

Tensor randperm(std::int64_t n) {
  check<ConfigError>(n >= 0, "randperm: the number of elements is {}, it must not be negative", n);
  detail::note_host_access("randperm");
  const Device device = core::thread_state().device;
  Tensor order = arange(n, {.device = Device()});
  if (n < 2) {
    return order.to(device);
  }
  Generator& generator = current_generator();
  const std::uint64_t base = generator.reserve(static_cast<std::uint64_t>(n));
  std::int64_t* values = order.mutable_data<std::int64_t>();
  for (std::int64_t i = n - 1; i > 0; --i) {
    const auto block = kernels::philox(generator.seed(), base + static_cast<std::uint64_t>(i));
    std::swap(values[i], values[kernels::bounded(block[0], block[1], static_cast<std::uint64_t>(i) + 1)]);
  }
  return order.to(device);
}

Tensor& Tensor::uniform_(double low, double high) {
  require_drawable(*this, "uniform_");
  check<ConfigError>(low <= high, "uniform_: [{}, {}) is empty", low, high);
  const double largest = dtype() == DType::f64 ? DBL_MAX : dtype() == DType::f16 ? 65504 : FLT_MAX;
  check<ConfigError>(high - low <= largest, "uniform_: [{}, {}) is wider than {}", low, high, dtype());
  raw().storage->bump_version();
  draw(*this, kernels::Distribution::uniform, low, high);
  return *this;
}

Tensor& Tensor::normal_(double mean, double std) {
  require_drawable(*this, "normal_");
  check<ConfigError>(std >= 0, "normal_: the standard deviation is {}", std);
  raw().storage->bump_version();
  draw(*this, kernels::Distribution::normal, mean, std);
  return *this;
}

namespace detail {

Tensor arange(double start, double end, double step, const TensorOptions& options) {
  check<ConfigError>(
      std::isfinite(start) && std::isfinite(end) && std::isfinite(step) && step != 0 && (end - start) / step >= 0,
      "arange: {} to {} by {} never ends", start, end, step);
  const double steps = std::ceil((end - start) / step);
  check<ConfigError>(steps < 0x1p62, "arange: {} to {} by {} has too many elements", start, end, step);
  const auto count = static_cast<std::int64_t>(steps);
  Tensor tensor = make("arange", {count}, options);
  if (count > 0) {
    check_fits("arange", tensor.dtype(), start);
    check_fits("arange", tensor.dtype(), start + static_cast<double>(count - 1) * step);
  }
  kernels::launch(
      detail::context_of(tensor.raw()),
      kernels::Arange{
          .dtype = tensor.dtype(), .out = tensor.raw().data(), .count = count, .start = start, .step = step});
  return finish(std::move(tensor), options);
}

void check_count(const char* op, const Shape& sizes, std::size_t count) {
  check_sizes(op, sizes);
  const std::int64_t numel = sizes.numel();
  check<ShapeError>(static_cast<std::size_t>(numel) == count, "{}: shape {} has {} elements, got {} values", op, sizes,
                    numel, count);
}

Tensor from_foreign(const char* op, void* data, DType dtype, const Shape& sizes, const Shape& strides,
                    std::function<void(void*)> deleter, const TensorOptions& options) {
  check_sizes(op, sizes);
  const Device current = core::thread_state().device;
  const Device device = options.device.value_or(current.type == DeviceType::cpu ? current : Device());
  check<DeviceError>(device.type == DeviceType::cpu,
                     "{}: the memory is the host's, not that of {}; copy it there with .to(\"{}\")", op, device,
                     device);
  check<DTypeError>(options.dtype.value_or(dtype) == dtype, "{}: the elements are {}, not {}; convert with .to()", op,
                    dtype, options.dtype.value_or(dtype));
  check<DTypeError>(!options.requires_grad || is_floating_point(dtype),
                    "{}: only floating point tensors have gradients, got {}", op, dtype);
  const bool any = sizes.numel() > 0;
  check<ValueError>(data != nullptr || !any, "{}: null has no room for {}", op, sizes);
  check<ValueError>(reinterpret_cast<std::uintptr_t>(data) % item_size(dtype) == 0,
                    "{}: the address {} is not a multiple of {}, as elements of {} need", op, fmt::ptr(data),
                    item_size(dtype), dtype);
  bool fits = strides.ndim() == sizes.ndim();
  std::int64_t last = 0;  // offset of the farthest element
  for (int dim = 0; fits && dim < sizes.ndim(); ++dim) {
    std::int64_t extent = 0;
    fits = strides[dim] >= 0 && (!any || (!__builtin_mul_overflow(sizes[dim] - 1, strides[dim], &extent) &&
                                          !__builtin_add_overflow(last, extent, &last)));
  }
  fits = fits && last < INT64_MAX / static_cast<std::int64_t>(item_size(dtype));
  check<ShapeError>(fits, "{}: strides {} don't fit sizes {}: one each, not negative, and within what memory has", op,
                    strides, sizes);
  View view;
  const std::size_t bytes = any ? static_cast<std::size_t>(last + 1) * item_size(dtype) : 0;
  view.storage = Storage::adopt(data, bytes, device, std::move(deleter));
  view.storage->set_foreign();
  view.dtype = dtype;
  view.sizes = sizes;
  view.strides = strides;
  return finish(Tensor(std::move(view)), options);
}

Tensor from_memory(const char* op, const void* data, std::size_t count, DType dtype, const Shape& sizes,
                   const TensorOptions& options) {
  check_count(op, sizes, count);
  detail::note_host_access(op);
  const Device device = options.device.value_or(core::thread_state().device);
  if (device.type == DeviceType::cuda) {
    View there = empty_view(sizes, options.dtype.value_or(dtype), device);
    copy(there, from_memory(op, data, count, dtype, sizes, {.dtype = options.dtype, .device = Device()}).raw());
    return finish(Tensor(std::move(there)), options);
  }
  Tensor tensor = make(op, sizes, {.dtype = options.dtype.value_or(dtype), .device = device});
  void* to = tensor.raw().data();
  if (tensor.dtype() == dtype) {
    if (count > 0) {
      std::memcpy(to, data, count * item_size(dtype));
    }
    return finish(std::move(tensor), options);
  }
  core::dispatch_any(dtype, [&]<class In>() {
    core::dispatch_any(tensor.dtype(), [&]<class Out>() {
      convert_all(op, sizes, static_cast<Out*>(to), static_cast<const In*>(data), count);
    });
  });
  return finish(std::move(tensor), options);
}

Tensor from_bools(const std::vector<bool>& values, const Shape& sizes, const TensorOptions& options) {
  check_count("from_data", sizes, values.size());
  note_host_access("from_data");
  Tensor flags = make("from_data", sizes, {.dtype = DType::boolean, .device = Device()});
  std::copy(values.begin(), values.end(), static_cast<bool*>(flags.raw().data()));
  flags = flags.to(options.device.value_or(core::thread_state().device));
  return finish(options.dtype ? flags.to(*options.dtype) : std::move(flags), options);
}

}  // namespace detail

}  // namespace tandem::inline v0
