#include <tandem/kernels/pool.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>

// Pooling. Floor: each element is read and written once. A thread has an output forwards, and an input backwards, which
// looks at the windows that read it, in their order: so no two threads write to one place.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kThreads = 256;

// An element of planes of these sizes.
struct At {
  std::int64_t inner;  // distance of neighbours in a plane
  std::int64_t lane, outer, y, x;

  __device__ At(std::int64_t element, const std::array<std::int64_t, 2>& sizes, std::int64_t inner)
      : inner(inner), lane(0) {
    if (inner != 1) {
      lane = element % inner;
      element /= inner;
    }
    outer = element / (sizes[0] * sizes[1]);
    y = element / sizes[1] % sizes[0];
    x = element % sizes[1];
  }
  // The first element of the same plane among planes of `plane` elements.
  __device__ std::int64_t first_of(std::int64_t plane) const { return outer * plane * inner + lane; }
};

template <class Body>
__device__ void for_my_elements(std::int64_t count, Body&& body) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    body(i);
  }
}

// Calls body(output) for the windows that read an element of the plane, in their order.
template <class Body>
__device__ void for_windows_of(const PoolShape& shape, const At& input, Body&& body) {
  const auto reads = [](const PoolShape::Range& range, std::int64_t at) {
    return at >= range.begin && at < range.end && (at - range.begin) % range.step == 0;
  };
  const PoolShape::Range of_y = shape.windows_of(0, input.y);
  const PoolShape::Range of_x = shape.windows_of(1, input.x);
  for (std::int64_t y = of_y.begin; y < of_y.end; ++y) {
    if (reads(shape.range(0, y), input.y)) {
      for (std::int64_t x = of_x.begin; x < of_x.end; ++x) {
        if (reads(shape.range(1, x), input.x)) {
          body(y, x);
        }
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) largest(MaxPool kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  for_my_elements(shape.planes * shape.out_plane(), [&](std::int64_t i) {
    const At output(i, shape.out, shape.inner);
    const T* in = static_cast<const T*>(kernel.in) + output.first_of(shape.in_plane());
    const PoolShape::Range rows = shape.range(0, output.y);
    const PoolShape::Range columns = shape.range(1, output.x);
    std::int64_t chosen = rows.begin * shape.in[1] + columns.begin;
    C largest = C(in[chosen * shape.inner]);
    for (std::int64_t y = rows.begin; y < rows.end; y += rows.step) {
      for (std::int64_t x = columns.begin; x < columns.end; x += columns.step) {
        const C value = C(in[(y * shape.in[1] + x) * shape.inner]);
        if (value > largest || value != value) {
          largest = value;
          chosen = y * shape.in[1] + x;
        }
      }
    }
    static_cast<T*>(kernel.out)[i] = T(largest);
    kernel.places[i] = static_cast<std::int32_t>(chosen);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) mean(AvgPool kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  for_my_elements(shape.planes * shape.out_plane(), [&](std::int64_t i) {
    const At output(i, shape.out, shape.inner);
    const T* in = static_cast<const T*>(kernel.in) + output.first_of(shape.in_plane());
    const PoolShape::Range rows = shape.range(0, output.y);
    const PoolShape::Range columns = shape.range(1, output.x);
    C sum(0);
    for (std::int64_t y = rows.begin; y < rows.end; ++y) {
      for (std::int64_t x = columns.begin; x < columns.end; ++x) {
        sum += C(in[(y * shape.in[1] + x) * shape.inner]);
      }
    }
    static_cast<T*>(kernel.out)[i] = T(sum / static_cast<C>(kernel.divisor.at(shape, output.y, output.x)));
  });
}

template <class T>
__device__ void write(void* to, std::int64_t i, ComputeType<T> sum, Accumulate accumulate) {
  T& out = static_cast<T*>(to)[i];
  out = T(accumulate == Accumulate::yes ? ComputeType<T>(out) + sum : sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) largest_back(MaxPoolGrad kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  for_my_elements(shape.planes * shape.in_plane(), [&](std::int64_t i) {
    const At input(i, shape.in, shape.inner);
    C sum(0);
    for_windows_of(shape, input, [&](std::int64_t y, std::int64_t x) {
      const std::int64_t output = input.first_of(shape.out_plane()) + (y * shape.out[1] + x) * shape.inner;
      if (kernel.places[output] == input.y * shape.in[1] + input.x) {
        sum += C(static_cast<const T*>(kernel.grad)[output]);
      }
    });
    write<T>(kernel.in_grad, i, sum, kernel.accumulate);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) mean_back(AvgPoolGrad kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  for_my_elements(shape.planes * shape.in_plane(), [&](std::int64_t i) {
    const At input(i, shape.in, shape.inner);
    C sum(0);
    for_windows_of(shape, input, [&](std::int64_t y, std::int64_t x) {
      const std::int64_t output = input.first_of(shape.out_plane()) + (y * shape.out[1] + x) * shape.inner;
      sum += C(static_cast<const T*>(kernel.grad)[output]) / static_cast<C>(kernel.divisor.at(shape, y, x));
    });
    write<T>(kernel.in_grad, i, sum, kernel.accumulate);
  });
}

template <class T>
auto function_of(const MaxPool&) {
  return largest<T>;
}
template <class T>
auto function_of(const MaxPoolGrad&) {
  return largest_back<T>;
}
template <class T>
auto function_of(const AvgPool&) {
  return mean<T>;
}
template <class T>
auto function_of(const AvgPoolGrad&) {
  return mean_back<T>;
}

template <class Kernel>
void launch_pool(Context& context, const Kernel& kernel, std::int64_t plane) {
  const std::int64_t count = kernel.shape.planes * plane;
  if (count == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    queue.launch(Kernel::kName, queue.blocks_for(count, kThreads), kThreads, 0, function_of<T>(kernel), kernel);
  });
}

}  // namespace

void run(OnCuda, Context& context, const MaxPool& kernel) { launch_pool(context, kernel, kernel.shape.out_plane()); }

void run(OnCuda, Context& context, const MaxPoolGrad& kernel) { launch_pool(context, kernel, kernel.shape.in_plane()); }

void run(OnCuda, Context& context, const AvgPool& kernel) { launch_pool(context, kernel, kernel.shape.out_plane()); }

void run(OnCuda, Context& context, const AvgPoolGrad& kernel) { launch_pool(context, kernel, kernel.shape.in_plane()); }

}  // namespace tandem::inline v0::kernels
