#include <tandem/kernels/index.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/sorted_sum.h>

namespace tandem::inline v0::kernels {

namespace {

using sorted_sum::kThreads;

// ---- IndexSelect ----
// Floor: 2 bytes per byte of the result, and the indices once. Rows are moved in the largest units, up to 16 bytes, to
// which they and both addresses are aligned. Threads walk over all units of the result, four at once, so that rows of
// any length keep the memory busy.

constexpr int kUnroll = 4;

struct Rows {
  LongDivider columns;  // units in a row
  LongDivider count;    // rows in an outer position
  std::int64_t size;    // rows in an outer position of the input
  std::int64_t units;   // units in the result
};

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    select_rows(Unit* out, const Unit* in, const std::int64_t* index, Rows rows, IndexRange range) {
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; first < rows.units; first += kUnroll * threads) {
    Unit values[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = first + u * threads;
      if (at < rows.units) {
        const std::int64_t row = rows.columns.quotient(at);
        const std::int64_t column = at - row * rows.columns.divisor();
        const std::int64_t outer = rows.count.quotient(row);
        const std::int64_t i = row - outer * rows.count.divisor();
        const std::int64_t source = index[i];
        if (range.has(source)) {
          values[u] = in[(outer * rows.size + source) * rows.columns.divisor() + column];
        } else if (outer == 0 && column == 0) {
          range.report_bad(source, i);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = first + u * threads;
      if (at < rows.units) {
        out[at] = values[u];
      }
    }
  }
}

template <class Unit>
void launch_select(const Queue& queue, const IndexSelect& kernel) {
  const std::int64_t columns = kernel.inner_bytes / static_cast<std::int64_t>(sizeof(Unit));
  const std::int64_t all_rows = kernel.outer * kernel.count;
  const Rows rows{.columns = LongDivider(columns, all_rows * columns),
                  .count = LongDivider(kernel.count, all_rows),
                  .size = kernel.size,
                  .units = all_rows * columns};
  queue.launch(IndexSelect::kName, queue.blocks_for(rows.units, kThreads * kUnroll), kThreads, 0, select_rows<Unit>,
               static_cast<Unit*>(kernel.out), static_cast<const Unit*>(kernel.in), kernel.index, rows,
               index_range(queue, kernel.op, kernel.size));
}

// ---- IndexAdd ----
// Floor: each entry is read once, and each row that receives one is read and written once. One owner adds all entries
// of a row in the order of the list, so that the sums have the CPU's bits.
// A short list takes one launch. Each entry has a block that searches the list for entries with the same index, and the
// first of these owns the row. A long list would be searched too often, so its positions are sorted by index, which
// costs a few launches and about 60 bytes per entry.

constexpr int kShort = 2048;  // longer lists are sorted
constexpr unsigned int kAllLanes = 0xFFFFFFFFU;

struct DensePlaces {
  std::int64_t size, count, inner;
  std::int64_t begin;  // start of the sorted part of the list

  __device__ std::int64_t out(std::int64_t outer, std::uint64_t key) const {
    return (outer * size + static_cast<std::int64_t>(key)) * inner;
  }
  __device__ std::int64_t in(std::int64_t outer, std::uint32_t position) const {
    return (outer * count + begin + position) * inner;
  }
};

// Writes the positions at which `index` has `wanted` to `list`, in order, and returns their number. All threads of a
// block must call.
__device__ int find_all(const std::int64_t* index, int count, std::int64_t wanted, std::uint16_t* list) {
  __shared__ unsigned int found[kShort / 32];
  __shared__ int total;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int words = (count + 31) / 32;
  for (int word = static_cast<int>(threadIdx.x / 32); word < words; word += kThreads / 32) {
    const int i = word * 32 + lane;
    const unsigned int here = __ballot_sync(kAllLanes, i < count && index[i] == wanted);
    if (lane == 0) {
      found[word] = here;
    }
  }
  __syncthreads();
  const int word = static_cast<int>(threadIdx.x);
  if (word < words) {
    int at = 0;
    for (int w = 0; w < word; ++w) {
      at += __popc(found[w]);
    }
    for (unsigned int rest = found[word]; rest != 0; rest &= rest - 1) {
      list[at++] = static_cast<std::uint16_t>(word * 32 + __ffs(static_cast<int>(rest)) - 1);
    }
    if (word == words - 1) {
      total = at;
    }
  }
  __syncthreads();
  return total;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    add_listed(T* out, const T* in, const std::int64_t* index, std::int64_t skip, DensePlaces places, IndexRange range,
               LongDivider columns, std::int64_t items) {
  __shared__ std::uint16_t list[kShort];
  const std::int64_t row = index[blockIdx.x];
  if (!range.has(row)) {
    if (threadIdx.x == 0 && blockIdx.y == 0) {
      range.report_bad(row, blockIdx.x);
    }
    return;
  }
  if (row == skip) {
    return;
  }
  const int count = find_all(index, static_cast<int>(places.count), row, list);
  if (list[0] != blockIdx.x) {
    return;
  }
  const std::int64_t threads = std::int64_t{gridDim.y} * kThreads;
  for (std::int64_t item = std::int64_t{blockIdx.y} * kThreads + threadIdx.x; item < items; item += threads) {
    const std::int64_t outer = columns.quotient(item);
    const std::int64_t column = (item - outer * columns.divisor()) * V;
    auto* target = reinterpret_cast<Pack<T, V>*>(out + places.out(outer, static_cast<std::uint64_t>(row)) + column);
    Pack<T, V> sums = *target;
    for (int i = 0; i < count; i += sorted_sum::kAhead) {
      Pack<T, V> values[sorted_sum::kAhead] = {};
#pragma unroll
      for (int k = 0; k < sorted_sum::kAhead; ++k) {
        if (i + k < count) {
          values[k] = *reinterpret_cast<const Pack<T, V>*>(in + places.in(outer, list[i + k]) + column);
        }
      }
#pragma unroll
      for (int k = 0; k < sorted_sum::kAhead; ++k) {
        if (i + k < count) {
          sorted_sum::add_to(sums, values[k]);
        }
      }
    }
    *target = sums;
  }
}

__global__ void __launch_bounds__(kThreads)
    key_indices(std::uint64_t* keys, const std::int64_t* index, std::int64_t begin, std::int64_t count,
                std::int64_t skip, IndexRange range) {
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += threads) {
    const std::int64_t row = index[begin + i];
    const bool in_range = range.has(row);
    if (!in_range) {
      range.report_bad(row, begin + i);
    }
    keys[i] = static_cast<std::uint64_t>(in_range && row != skip ? row : range.end);
  }
}

template <int V, class T>
void add_rows(const Queue& queue, const IndexAdd& kernel) {
  T* out = static_cast<T*>(kernel.out);
  const T* in = static_cast<const T*>(kernel.in);
  const IndexRange range = index_range(queue, kernel.op, kernel.size);
  const std::int64_t columns = kernel.inner / V;
  DensePlaces places{.size = kernel.size, .count = kernel.count, .inner = kernel.inner, .begin = 0};
  if (kernel.count <= kShort) {
    const std::int64_t items = kernel.outer * columns;
    const std::int64_t blocks = (items + kThreads - 1) / kThreads;
    queue.launch(
        IndexAdd::kName,
        dim3(static_cast<unsigned int>(kernel.count), static_cast<unsigned int>(blocks < 1024 ? blocks : 1024)),
        kThreads, 0, add_listed<T, V>, out, in, kernel.index, kernel.skip, places, range, LongDivider(columns, items),
        items);
    return;
  }
  for (; places.begin < kernel.count; places.begin += KeySort::kMost) {
    const std::int64_t rest = kernel.count - places.begin;
    KeySort sort = room_to_sort(queue, rest < KeySort::kMost ? rest : KeySort::kMost);
    queue.launch(IndexAdd::kName, queue.blocks_for(sort.count, kThreads), kThreads, 0, key_indices, sort.keys,
                 kernel.index, places.begin, sort.count, kernel.skip, range);
    const auto end = static_cast<std::uint64_t>(kernel.size);
    sort_positions(queue, IndexAdd::kName, sort, end);
    const SortedList list{.keys = sort.keys, .positions = sort.positions, .count = sort.count, .end = end};
    add_sorted<V>(queue, IndexAdd::kName, out, in, list, places, kernel.outer, columns);
  }
}

}  // namespace

void run(OnCuda, Context& context, const IndexSelect& kernel) {
  if (kernel.outer == 0 || kernel.count == 0 || kernel.inner_bytes == 0) {
    return;
  }
  const Queue queue(context);
  const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(kernel.out) |
                             reinterpret_cast<std::uintptr_t>(kernel.in) |
                             static_cast<std::uintptr_t>(kernel.inner_bytes);
  if (all % 16 == 0) {
    launch_select<Pack<std::uint64_t, 2>>(queue, kernel);
  } else if (all % 8 == 0) {
    launch_select<std::uint64_t>(queue, kernel);
  } else if (all % 4 == 0) {
    launch_select<std::uint32_t>(queue, kernel);
  } else if (all % 2 == 0) {
    launch_select<std::uint16_t>(queue, kernel);
  } else {
    launch_select<std::uint8_t>(queue, kernel);
  }
}

void run(OnCuda, Context& context, const IndexAdd& kernel) {
  if (kernel.outer == 0 || kernel.count == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      constexpr int kWide = sizeof(T) < 4 ? 4 : 16 / sizeof(T);  // more would take too many registers
      const std::uintptr_t addresses =
          reinterpret_cast<std::uintptr_t>(kernel.out) | reinterpret_cast<std::uintptr_t>(kernel.in);
      if (kernel.inner % kWide == 0 && addresses % (kWide * sizeof(T)) == 0) {
        add_rows<kWide, T>(queue, kernel);
      } else {
        add_rows<1, T>(queue, kernel);
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels
