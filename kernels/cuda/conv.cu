#include <tandem/kernels/conv.h>

#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>

// Convolutions that cuDNN does not compute, as products whose sides are read from where they lie. Floor: the operations
// of the product. A block computes 64 x 64 outputs at a time, 4 x 4 a thread, from two tiles in shared memory that are
// 16 deep. Each output is one sum in the order of its depth, so results depend neither on the cut nor on the memory
// format. Neighbouring threads read along the rows of images, and channels-last images do not lie so: that format is
// for cuDNN, and this kernel only has to compute it.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kTile = 64;
constexpr int kDeep = 16;
constexpr int kThreads = 256;
constexpr int kEach = 4;  // rows, and columns, of a thread

// A place of a window over an image's channel: (channel, y, x).
struct Place {
  std::int64_t channel, y, x;

  __device__ Place(std::int64_t channel, std::int64_t y, std::int64_t x) : channel(channel), y(y), x(x) {}
  __device__ Place(std::int64_t at, const Sizes2& sizes)
      : channel(at / (sizes[0] * sizes[1])), y(at / sizes[1] % sizes[0]), x(at % sizes[1]) {}
};

__device__ bool is_inside(std::int64_t y, std::int64_t x, const Sizes2& sizes) {
  return y >= 0 && y < sizes[0] && x >= 0 && x < sizes[1];
}

// The position of an element of images, or of filters, with this many channels.
__device__ std::int64_t position(MemoryFormat format, std::int64_t image, std::int64_t channels, const Place& at,
                                 const Sizes2& sizes) {
  return format == MemoryFormat::channels_last ? ((image * sizes[0] + at.y) * sizes[1] + at.x) * channels + at.channel
                                               : ((image * channels + at.channel) * sizes[0] + at.y) * sizes[1] + at.x;
}

// The position of a column's element in one of `channels`. The column's own channel is its image.
__device__ std::int64_t position(MemoryFormat format, const Place& column, std::int64_t channel, std::int64_t channels,
                                 const Sizes2& sizes) {
  return position(format, column.channel, channels, Place(channel, column.y, column.x), sizes);
}

// The position of the k-th element of a filter, counted row by row.
__device__ std::int64_t filter_position(MemoryFormat format, const ConvShape& shape, std::int64_t filter,
                                        std::int64_t k) {
  return format == MemoryFormat::channels_last
             ? position(format, filter, shape.in_channels, Place(k, shape.window), shape.window)
             : filter * shape.depth() + k;
}

// The element of `in` that an output's place reads through a tap.
template <class T>
__device__ ComputeType<T> read(MemoryFormat format, const ConvShape& shape, const T* in, std::int64_t group,
                               const Place& output, const Place& tap) {
  const std::int64_t y = output.y * shape.stride[0] - shape.padding[0] + tap.y * shape.dilation[0];
  const std::int64_t x = output.x * shape.stride[1] - shape.padding[1] + tap.x * shape.dilation[1];
  if (!is_inside(y, x, shape.in)) {
    return 0;
  }
  const Place at(output.channel, y, x);
  return in[position(format, at, group * shape.in_channels + tap.channel, shape.groups * shape.in_channels, shape.in)];
}

// Each of the three products gives its sizes and elements: a(row, k), b(k, column), and out(row, column).

template <class T>
struct Forward {
  Conv kernel;
  std::int64_t group = 0;

  __device__ std::int64_t rows() const { return kernel.shape.out_channels; }
  __device__ std::int64_t depth() const { return kernel.shape.depth(); }
  __device__ std::int64_t columns() const { return kernel.shape.batch * kernel.shape.out[0] * kernel.shape.out[1]; }
  __device__ ComputeType<T> a(std::int64_t row, std::int64_t k) const {
    return static_cast<const T*>(kernel.weight)[filter_position(kernel.format, kernel.shape, group * rows() + row, k)];
  }
  __device__ ComputeType<T> b(std::int64_t k, std::int64_t column) const {
    return read(kernel.format, kernel.shape, static_cast<const T*>(kernel.in), group, Place(column, kernel.shape.out),
                Place(k, kernel.shape.window));
  }
  __device__ T* out(std::int64_t row, std::int64_t column) const {
    const ConvShape& shape = kernel.shape;
    return static_cast<T*>(kernel.out) + position(kernel.format, Place(column, shape.out), group * rows() + row,
                                                  shape.groups * shape.out_channels, shape.out);
  }
  __device__ const void* bias() const { return kernel.bias; }
  __device__ bool relu() const { return kernel.relu; }
};

template <class T>
struct Back {
  ConvInGrad kernel;
  std::int64_t group = 0;

  __device__ std::int64_t rows() const { return kernel.shape.in_channels; }
  __device__ std::int64_t depth() const {
    return kernel.shape.out_channels * kernel.shape.window[0] * kernel.shape.window[1];
  }
  __device__ std::int64_t columns() const { return kernel.shape.batch * kernel.shape.in[0] * kernel.shape.in[1]; }
  __device__ ComputeType<T> a(std::int64_t row, std::int64_t k) const {
    const ConvShape& shape = kernel.shape;
    const Place tap(k, shape.window);  // its channel is that of the output
    const std::int64_t filter = group * shape.out_channels + tap.channel;
    return static_cast<const T*>(
        kernel.weight)[position(kernel.format, filter, shape.in_channels, Place(row, tap.y, tap.x), shape.window)];
  }
  __device__ ComputeType<T> b(std::int64_t k, std::int64_t column) const {
    const ConvShape& shape = kernel.shape;
    const Place tap(k, shape.window);
    const Place input(column, shape.in);
    const std::int64_t y = input.y + shape.padding[0] - tap.y * shape.dilation[0];
    const std::int64_t x = input.x + shape.padding[1] - tap.x * shape.dilation[1];
    if (y < 0 || x < 0 || y % shape.stride[0] != 0 || x % shape.stride[1] != 0 ||
        !is_inside(y / shape.stride[0], x / shape.stride[1], shape.out)) {
      return 0;
    }
    const Place output(input.channel, y / shape.stride[0], x / shape.stride[1]);
    return static_cast<const T*>(kernel.grad)[position(kernel.format, output, group * shape.out_channels + tap.channel,
                                                       shape.groups * shape.out_channels, shape.out)];
  }
  __device__ T* out(std::int64_t row, std::int64_t column) const {
    const ConvShape& shape = kernel.shape;
    return static_cast<T*>(kernel.in_grad) + position(kernel.format, Place(column, shape.in), group * rows() + row,
                                                      shape.groups * shape.in_channels, shape.in);
  }
  __device__ const void* bias() const { return kernel.bias; }
  __device__ static bool relu() { return false; }
};

template <class T>
struct OfWeight {
  ConvWeightGrad kernel;
  std::int64_t group = 0;

  __device__ std::int64_t rows() const { return kernel.shape.out_channels; }
  __device__ std::int64_t depth() const { return kernel.shape.batch * kernel.shape.out[0] * kernel.shape.out[1]; }
  __device__ std::int64_t columns() const { return kernel.shape.depth(); }
  __device__ ComputeType<T> a(std::int64_t row, std::int64_t k) const {
    const ConvShape& shape = kernel.shape;
    return static_cast<const T*>(kernel.grad)[position(kernel.format, Place(k, shape.out), group * rows() + row,
                                                       shape.groups * shape.out_channels, shape.out)];
  }
  __device__ ComputeType<T> b(std::int64_t k, std::int64_t column) const {
    return read(kernel.format, kernel.shape, static_cast<const T*>(kernel.in), group, Place(k, kernel.shape.out),
                Place(column, kernel.shape.window));
  }
  __device__ T* out(std::int64_t row, std::int64_t column) const {
    return static_cast<T*>(kernel.weight_grad) +
           filter_position(kernel.format, kernel.shape, group * rows() + row, column);
  }
  __device__ const void* bias() const { return nullptr; }
  __device__ static bool relu() { return false; }
};

template <class T, class Product>
__global__ void __launch_bounds__(kThreads) multiply(Product product, std::int64_t groups) {
  using C = ComputeType<T>;
  __shared__ C a_tile[kDeep][kTile];
  __shared__ C b_tile[kDeep][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int thread_row = thread / (kTile / kEach);
  const int thread_column = thread % (kTile / kEach);
  const std::int64_t rows = product.rows();
  const std::int64_t columns = product.columns();
  const std::int64_t depth = product.depth();
  const std::int64_t high = (rows + kTile - 1) / kTile;
  const std::int64_t wide = (columns + kTile - 1) / kTile;
  for (std::int64_t tile = blockIdx.x; tile < groups * high * wide; tile += gridDim.x) {
    product.group = tile / (high * wide);
    const std::int64_t row = tile / wide % high * kTile;
    const std::int64_t column = tile % wide * kTile;
    C sums[kEach][kEach] = {};
    for (std::int64_t k = 0; k < depth; k += kDeep) {
      for (int i = thread; i < kDeep * kTile; i += kThreads) {
        // Neighbouring threads read along what lies side by side: the depth on the left, columns on the right.
        const int a_k = i % kDeep;
        const int a_row = i / kDeep;
        a_tile[a_k][a_row] = k + a_k < depth && row + a_row < rows ? product.a(row + a_row, k + a_k) : C(0);
        const int b_k = i / kTile;
        const int b_column = i % kTile;
        b_tile[b_k][b_column] =
            k + b_k < depth && column + b_column < columns ? product.b(k + b_k, column + b_column) : C(0);
      }
      __syncthreads();
#pragma unroll
      for (int deep = 0; deep < kDeep; ++deep) {
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
#pragma unroll
          for (int c = 0; c < kEach; ++c) {
            sums[r][c] += a_tile[deep][thread_row * kEach + r] * b_tile[deep][thread_column + c * (kTile / kEach)];
          }
        }
      }
      __syncthreads();
    }
    const T* bias = static_cast<const T*>(product.bias());
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const std::int64_t out_row = row + thread_row * kEach + r;
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const std::int64_t out_column = column + thread_column + c * (kTile / kEach);
        if (out_row < rows && out_column < columns) {
          T* out = product.out(out_row, out_column);
          C value = sums[r][c];
          value = bias != nullptr ? value + C(bias[product.group * rows + out_row]) : value;
          value = product.kernel.accumulate == Accumulate::yes ? C(*out) + value : value;
          *out = T(product.relu() && value < C(0) ? C(0) : value);
        }
      }
    }
  }
}

template <template <class> class Product, class Kernel>
void launch_product(Context& context, const Kernel& kernel, std::int64_t rows, std::int64_t columns) {
  const std::int64_t groups = kernel.shape.groups;
  if (groups * rows * columns == 0) {
    return;
  }
  const Queue queue(context);
  if (gpu::try_cudnn(queue, kernel)) {
    return;
  }
  const std::int64_t tiles = groups * ((rows + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile);
  for_floating(kernel.dtype, [&]<class T>() {
    queue.launch(Kernel::kName, queue.blocks_for(tiles, 1), kThreads, 0, multiply<T, Product<T>>, Product<T>{kernel},
                 groups);
  });
}

}  // namespace

void run(OnCuda, Context& context, const Conv& kernel) {
  const ConvShape& shape = kernel.shape;
  launch_product<Forward>(context, kernel, shape.out_channels, shape.batch * shape.out[0] * shape.out[1]);
}

void run(OnCuda, Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  launch_product<Back>(context, kernel, shape.in_channels, shape.batch * shape.in[0] * shape.in[1]);
}

void run(OnCuda, Context& context, const ConvWeightGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  launch_product<OfWeight>(context, kernel, shape.out_channels, shape.depth());
}

}  // namespace tandem::inline v0::kernels
