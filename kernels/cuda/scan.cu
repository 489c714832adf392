#include <algorithm>
#include <type_traits>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/cuda/patterns/geometry.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/scan.h>

// Running sums. Floor: each element is read once and each sum written once, sizeof(T) + sizeof(Out) bytes.
//
// A long dense row (inner = 1) has a block or a warp, which takes it tile by tile, a pack to each thread, and carries
// the sum so far. Other lines have one thread each, neighbouring lines neighbouring threads. If lines are too few to
// fill the GPU, they are cut into chunks, and a first kernel finds the chunks' sums with one more read.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kLongRow = 1024;  // longer rows have a block, others a warp
constexpr int kShortRow = 32;   // rows up to this have a thread
constexpr int kLineThreads = 128;
constexpr int kLineReads = 8;    // elements that a thread of a line reads at once
constexpr int kChunkReads = 64;  // least number of elements of a thread in a chunk

template <class T>
struct Lines {
  static constexpr bool kWhole = std::is_integral_v<T>;
  using Total = std::conditional_t<kWhole, std::uint64_t, double>;
  using Out = std::conditional_t<kWhole, std::int64_t, T>;

  const T* in;
  Out* out;
  bool reverse, accumulate;
  std::int64_t outer, size, inner;
  std::int64_t chunk;  // elements in a chunk
  int chunks;
  Total* sums;  // of chunks, if there are several: [row, chunk] for rows, [chunk, line] for other lines
  WideDivider by_inner;

  static __device__ Total widened(T value) {
    if constexpr (kWhole) {
      return static_cast<Total>(static_cast<std::int64_t>(value));
    } else {
      return static_cast<Total>(value);
    }
  }
  __device__ Out result(Out before, Total total) const {
    using C = ComputeType<Out>;
    const C value = static_cast<C>(total);
    return Out(accumulate ? wrapping_add<C>(before, value) : value);
  }
};

// Position of the pack of V elements from i on. In a reversed row, i counts from the end.
template <int V, class T>
__device__ __forceinline__ std::int64_t pack_at(const Lines<T>& lines, std::int64_t row, std::int64_t i) {
  return row * lines.size + (lines.reverse ? lines.size - V - i : i);
}

template <int kThreads, int V, class T>
__global__ void __launch_bounds__(kThreads) row_chunk_sums(Lines<T> lines) {
  using Total = typename Lines<T>::Total;
  const std::int64_t begin = blockIdx.y * lines.chunk;
  const std::int64_t end = begin + lines.chunk < lines.size ? begin + lines.chunk : lines.size;
  for (std::int64_t row = blockIdx.x; row < lines.outer; row += gridDim.x) {
    Total sum = 0;
#pragma unroll 4
    for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * V; i < end; i += kThreads * V) {
      const Pack<T, V> pack = load_pack<V>(lines.in + pack_at<V>(lines, row, i), true);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum += Lines<T>::widened(pack.values[v]);
      }
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) {
      lines.sums[row * lines.chunks + blockIdx.y] = sum;
    }
  }
}

template <int kThreads, int V, class T>
__global__ void __launch_bounds__(kThreads) scan_rows(Lines<T> lines) {
  using Total = typename Lines<T>::Total;
  using Out = typename Lines<T>::Out;
  const std::int64_t begin = blockIdx.y * lines.chunk;
  const std::int64_t end = begin + lines.chunk < lines.size ? begin + lines.chunk : lines.size;
  for (std::int64_t row = blockIdx.x; row < lines.outer; row += gridDim.x) {
    Total carry = 0;
    if (blockIdx.y > 0) {
      for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(blockIdx.y); i += kThreads) {
        carry += lines.sums[row * lines.chunks + i];
      }
      carry = block_sum<kThreads>(carry);
    }
    for (std::int64_t tile = begin; tile < end; tile += kThreads * V) {
      const std::int64_t i = tile + static_cast<int>(threadIdx.x) * V;
      const std::int64_t at = pack_at<V>(lines, row, i);
      Total totals[V] = {};
      Total sum = 0;
      if (i < end) {
        const Pack<T, V> pack = load_pack<V>(lines.in + at, true);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sum += Lines<T>::widened(pack.values[lines.reverse ? V - 1 - v : v]);
          totals[v] = sum;
        }
      }
      Total all;
      const Total before = carry + block_exclusive_sum<kThreads>(sum, all);
      if (i < end) {
        Pack<Out, V> out{};
        if (lines.accumulate) {
          out = load_pack<V>(lines.out + at, true);
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const int target = lines.reverse ? V - 1 - v : v;
          out.values[target] = lines.result(out.values[target], before + totals[v]);
        }
        *reinterpret_cast<Pack<Out, V>*>(lines.out + at) = out;
      }
      carry += all;
    }
  }
}

// Each line and chunk has a thread. Without kWrite the thread only finds the chunk's sum.
template <bool kWrite, class T>
__global__ void __launch_bounds__(kLineThreads) scan_lines(Lines<T> lines) {
  using Total = typename Lines<T>::Total;
  const std::int64_t count = lines.outer * lines.inner;
  const std::int64_t begin = blockIdx.y * lines.chunk;
  const std::int64_t end = begin + lines.chunk < lines.size ? begin + lines.chunk : lines.size;
  const std::int64_t stride = lines.reverse ? -lines.inner : lines.inner;
  for (std::int64_t line = std::int64_t{blockIdx.x} * kLineThreads + threadIdx.x; line < count;
       line += std::int64_t{gridDim.x} * kLineThreads) {
    const std::int64_t outer = lines.by_inner.quotient(line);
    const std::int64_t first =
        (outer * lines.size + (lines.reverse ? lines.size - 1 : 0)) * lines.inner + line - outer * lines.inner;
    Total total = 0;
    if (kWrite) {
      for (int i = 0; i < static_cast<int>(blockIdx.y); ++i) {
        total += lines.sums[i * count + line];
      }
    }
    for (std::int64_t i = begin; i < end; i += kLineReads) {
      T values[kLineReads];
#pragma unroll
      for (int u = 0; u < kLineReads; ++u) {
        values[u] = i + u < end ? lines.in[first + (i + u) * stride] : T(0);
      }
#pragma unroll
      for (int u = 0; u < kLineReads; ++u) {
        total += Lines<T>::widened(values[u]);
        if (kWrite && i + u < end) {
          auto& out = lines.out[first + (i + u) * stride];
          out = lines.result(out, total);
        }
      }
    }
    if (!kWrite) {
      lines.sums[blockIdx.y * count + line] = total;
    }
  }
}

// Cuts lines into as many chunks of whole tiles as it takes to fill the GPU.
template <class T>
void cut(const Queue& queue, Lines<T>& lines, std::int64_t blocks, std::int64_t tile, std::int64_t tiles_at_least) {
  const std::int64_t fill = std::int64_t{queue.gpu().multiprocessors} * 8;
  const std::int64_t most = std::min<std::int64_t>(4096, lines.size / (tile * tiles_at_least));
  const std::int64_t chunks = std::max<std::int64_t>(1, std::min(most, fill / blocks));
  lines.chunk = ((lines.size + chunks - 1) / chunks + tile - 1) / tile * tile;
  lines.chunks = static_cast<int>((lines.size + lines.chunk - 1) / lines.chunk);
  if (lines.chunks > 1) {
    lines.sums = queue.workspace_array<typename Lines<T>::Total>(lines.outer * lines.inner * lines.chunks);
  }
}

template <int kThreads, int V, class T>
void launch_rows(const Queue& queue, Lines<T> lines) {
  cut(queue, lines, lines.outer, kThreads * V, 4);
  const unsigned int rows = queue.blocks_for(lines.outer, 1);
  const auto chunks = static_cast<unsigned int>(lines.chunks);
  if (chunks > 1) {
    queue.launch(CumSum::kName, dim3(rows, chunks - 1), kThreads, 0, row_chunk_sums<kThreads, V, T>, lines);
  }
  queue.launch(CumSum::kName, dim3(rows, chunks), kThreads, 0, scan_rows<kThreads, V, T>, lines);
}

template <class T>
void cumsum(const Queue& queue, const CumSum& kernel) {
  using Out = typename Lines<T>::Out;
  constexpr int kWide = 16 / static_cast<int>(std::max(sizeof(T), sizeof(Out)));
  Lines<T> lines{.in = static_cast<const T*>(kernel.in),
                 .out = static_cast<Out*>(kernel.out),
                 .reverse = kernel.reverse,
                 .accumulate = kernel.accumulate == Accumulate::yes,
                 .outer = kernel.outer,
                 .size = kernel.size,
                 .inner = kernel.inner,
                 .chunk = 0,
                 .chunks = 1,
                 .sums = nullptr,
                 .by_inner = WideDivider(kernel.inner)};
  const std::int64_t count = kernel.outer * kernel.inner;
  if (kernel.inner == 1 && kernel.size > kShortRow) {
    const bool wide = kernel.size % kWide == 0 && aligned_for<kWide>(static_cast<const T*>(kernel.in)) &&
                      aligned_for<kWide>(static_cast<const Out*>(kernel.out));
    if (kernel.size > kLongRow) {
      return wide ? launch_rows<256, kWide>(queue, lines) : launch_rows<256, 1>(queue, lines);
    }
    return wide ? launch_rows<32, kWide>(queue, lines) : launch_rows<32, 1>(queue, lines);
  }
  const std::int64_t blocks = (count + kLineThreads - 1) / kLineThreads;
  cut(queue, lines, blocks, 1, kChunkReads);
  const auto chunks = static_cast<unsigned int>(lines.chunks);
  const unsigned int across = queue.blocks_for(count, kLineThreads);
  if (chunks > 1) {
    queue.launch(CumSum::kName, dim3(across, chunks - 1), kLineThreads, 0, scan_lines<false, T>, lines);
  }
  queue.launch(CumSum::kName, dim3(across, chunks), kLineThreads, 0, scan_lines<true, T>, lines);
}

}  // namespace

void run(OnCuda, Context& context, const CumSum& kernel) {
  if (kernel.outer == 0 || kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() { cumsum<T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
