#include <tandem/kernels/gather.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/sorted_sum.h>

namespace tandem::inline v0::kernels {

namespace {

// ---- Gather ----
// Floor: 8 bytes of index and two elements per element. The element-wise walker moves index and result in packs of 2,
// and the input element by element.

template <class Item>
struct GatherFunctor {
  static constexpr int kOperands = 3;
  static constexpr int kBytes = sizeof(std::int64_t);

  Item* out;
  const std::int64_t* index;
  const Item* in;
  const std::int64_t* list;  // first index of the list
  std::int64_t dim_stride;
  IndexRange range;

  const void* data(int i) const { return i == 0 ? static_cast<const void*>(out) : i == 1 ? index : nullptr; }
  int size(int i) const { return i == 1 ? sizeof(std::int64_t) : sizeof(Item); }
  GatherFunctor advanced(const std::int64_t* offsets) const {
    return {out + offsets[0], index + offsets[1], in + offsets[2], list, dim_stride, range};
  }

  template <int V>
  struct Values {
    Pack<Item, V> in;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    const std::int64_t* from = index + offsets[1];
    const Pack<std::int64_t, V> at = load_pack<V>(from, dense[1]);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      values.in.values[i] = 0;
      if (range.has(at.values[i])) {
        values.in.values[i] = in[offsets[2] + (dense[2] ? i : 0) + at.values[i] * dim_stride];
      } else {
        range.report_bad(at.values[i], from + (dense[1] ? i : 0) - list);
      }
    }
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    *reinterpret_cast<Pack<Item, V>*>(out + offsets[0]) = values.in;
  }
};

template <class Item>
void gather(const Queue& queue, const Gather& kernel) {
  const auto* index = kernel.index.as<const std::int64_t>();
  for_each(queue, Gather::kName,
           GatherFunctor<Item>{kernel.out.as<Item>(), index, kernel.in.as<const Item>(), index, kernel.dim_stride,
                               index_range(queue, kernel.op, kernel.dim_size)},
           kernel.loop, {kernel.out.strides, kernel.index.strides, kernel.in.strides});
}

// ---- ScatterAdd ----
// Floor: an entry is 8 bytes of index and an element, and each target is read and written. A row shares no target with
// other rows. 1 to 32 lanes walk a row in order, so that sums have the CPU's bits: lanes with the same target agree on
// one owner, which adds their values lane by lane. A few long rows would leave the GPU idle, so their entries are
// sorted by target instead.

using sorted_sum::kThreads;
constexpr unsigned int kAllLanes = 0xFFFFFFFFU;

// All dimensions but the last. The operands are out, index, in.
struct ScatterRows {
  Geometry<3> geometry;
  std::int64_t last[3];  // strides of the last dimension; out's is 0
  std::int64_t count;    // number of rows
  std::int64_t length;   // elements in a row
  std::int64_t dim_stride;

  __device__ void begin(std::int64_t row, std::int64_t* offsets) const {
    offsets[0] = offsets[1] = offsets[2] = 0;
    geometry.add_offsets(static_cast<std::uint32_t>(row), offsets);
  }
};

// The type in which lanes exchange values.
template <class T>
struct ShownAs {
  using type = ComputeType<T>;
};
template <>
struct ShownAs<std::uint8_t> {
  using type = int;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_rows(T* out, const std::int64_t* index, const T* in, ScatterRows rows, IndexRange range, int lanes) {
  using Shown = typename ShownAs<T>::type;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t groups = kThreads / lanes;
  for (std::int64_t first = blockIdx.x * groups; first < rows.count; first += gridDim.x * groups) {
    const std::int64_t row = first + group;
    std::int64_t at[3] = {};
    if (row < rows.count) {
      rows.begin(row, at);
    }
    for (std::int64_t begin = 0; begin < rows.length; begin += lanes) {
      const std::int64_t i = begin + lane;
      std::int64_t target = -1;
      T value{};
      T sum{};
      if (row < rows.count && i < rows.length) {
        const std::int64_t from = at[1] + i * rows.last[1];
        target = index[from];
        if (range.has(target)) {
          value = in[at[2] + i * rows.last[2]];
          sum = out[at[0] + target * rows.dim_stride];
        } else {
          range.report_bad(target, from);
          target = -1;
        }
      }
      bool owner = target >= 0;
      for (int other = 0; other < lanes; ++other) {
        const std::int64_t its_target = lanes == 1 ? target : __shfl_sync(kAllLanes, target, other, lanes);
        const Shown its_value = lanes == 1 ? Shown(value) : __shfl_sync(kAllLanes, Shown(value), other, lanes);
        if (its_target == target) {
          owner = owner && other >= lane;
          sum = wrapping_add(sum, T(its_value));
        }
      }
      if (owner) {
        out[at[0] + target * rows.dim_stride] = sum;
      }
      __syncwarp();  // the next lanes may read this target
    }
  }
}

struct ScatterPlaces {
  ScatterRows rows;
  std::int64_t begin;  // position of the first sorted entry
  std::int64_t dim_size;

  __device__ std::int64_t out(std::int64_t, std::uint64_t key) const {
    const std::int64_t row = static_cast<std::int64_t>(key) / dim_size;
    std::int64_t offsets[3];
    rows.begin(row, offsets);
    return offsets[0] + (static_cast<std::int64_t>(key) - row * dim_size) * rows.dim_stride;
  }
  __device__ std::int64_t in(std::int64_t, std::uint32_t position) const {
    const std::int64_t row = (begin + position) / rows.length;
    std::int64_t offsets[3];
    rows.begin(row, offsets);
    return offsets[2] + (begin + position - row * rows.length) * rows.last[2];
  }
};

__global__ void __launch_bounds__(kThreads) key_targets(std::uint64_t* keys, const std::int64_t* index,
                                                        ScatterPlaces places, std::int64_t count, IndexRange range) {
  const ScatterRows& rows = places.rows;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t entry = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; entry < count; entry += threads) {
    const std::int64_t row = (places.begin + entry) / rows.length;
    std::int64_t at[3];
    rows.begin(row, at);
    const std::int64_t from = at[1] + (places.begin + entry - row * rows.length) * rows.last[1];
    const std::int64_t target = index[from];
    if (range.has(target)) {
      keys[entry] = static_cast<std::uint64_t>(row * range.end + target);
    } else {
      range.report_bad(target, from);
      keys[entry] = static_cast<std::uint64_t>(rows.count * range.end);
    }
  }
}

template <class T>
void add_by_sorting(const Queue& queue, const ScatterAdd& kernel, const ScatterRows& rows, const IndexRange& range) {
  const std::int64_t entries = rows.count * rows.length;
  ScatterPlaces places{.rows = rows, .begin = 0, .dim_size = kernel.dim_size};
  for (; places.begin < entries; places.begin += KeySort::kMost) {
    const std::int64_t rest = entries - places.begin;
    KeySort sort = room_to_sort(queue, rest < KeySort::kMost ? rest : KeySort::kMost);
    queue.launch(ScatterAdd::kName, queue.blocks_for(sort.count, kThreads), kThreads, 0, key_targets, sort.keys,
                 kernel.index.as<const std::int64_t>(), places, sort.count, range);
    const auto end = static_cast<std::uint64_t>(rows.count * kernel.dim_size);
    sort_positions(queue, ScatterAdd::kName, sort, end);
    const SortedList list{.keys = sort.keys, .positions = sort.positions, .count = sort.count, .end = end};
    add_sorted<1>(queue, ScatterAdd::kName, kernel.out.as<T>(), kernel.in.as<const T>(), list, places, 1, 1);
  }
}

// Lanes per row. If neighbours in memory belong to neighbouring rows, one lane per row is best, provided that the rows
// are many.
int lanes_for(const ScatterRows& rows) {
  constexpr std::int64_t kManyRows = 1 << 14;
  if (rows.last[2] != 1 && rows.count >= kManyRows) {
    return 1;
  }
  int lanes = 1;
  while (lanes < 32 && lanes < rows.length) {
    lanes *= 2;
  }
  return lanes;
}

void scatter(const Queue& queue, const ScatterAdd& kernel) {
  Loop outer = kernel.loop;
  const int last = --outer.ndim;
  const std::int64_t count = outer.numel();
  if (count > elementwise::kMostPositions) {
    // Rows share no targets, so one half can follow the other.
    ScatterAdd part = kernel;
    part.loop.sizes[0] = kernel.loop.sizes[0] / 2;
    scatter(queue, part);
    const auto item = static_cast<std::int64_t>(item_size(kernel.dtype));
    const std::int64_t rows = part.loop.sizes[0];
    part.loop.sizes[0] = kernel.loop.sizes[0] - rows;
    part.out.data = part.out.as<char>() + rows * part.out.strides[0] * item;
    part.index.data = part.index.as<std::int64_t>() + rows * part.index.strides[0];
    part.in.data = part.in.as<char>() + rows * part.in.strides[0] * item;
    return scatter(queue, part);
  }
  const ScatterRows rows{.geometry = Geometry<3>(outer, {kernel.out.strides, kernel.index.strides, kernel.in.strides}),
                         .last = {kernel.out.strides[last], kernel.index.strides[last], kernel.in.strides[last]},
                         .count = count,
                         .length = kernel.loop.sizes[last],
                         .dim_stride = kernel.dim_stride};
  const IndexRange range = index_range(queue, kernel.op, kernel.dim_size);
  constexpr std::int64_t kFewRows = 256;
  constexpr std::int64_t kLongRow = 2048;
  const bool sorts = count < kFewRows && rows.length >= kLongRow;
  for_any(kernel.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      if (sorts) {
        add_by_sorting<T>(queue, kernel, rows, range);
      } else {
        const int lanes = lanes_for(rows);
        queue.launch(ScatterAdd::kName, queue.blocks_for(count, kThreads / lanes), kThreads, 0, scatter_rows<T>,
                     kernel.out.as<T>(), kernel.index.as<const std::int64_t>(), kernel.in.as<const T>(), rows, range,
                     lanes);
      }
    }
  });
}

}  // namespace

void run(OnCuda, Context& context, const Gather& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  for_item(kernel.item_size, [&]<class Item>() { gather<Item>(queue, kernel); });
}

void run(OnCuda, Context& context, const ScatterAdd& kernel) {
  if (kernel.loop.numel() > 0) {
    scatter(Queue(context), kernel);
  }
}

}  // namespace tandem::inline v0::kernels
