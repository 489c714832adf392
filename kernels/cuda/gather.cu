#include <tandem/kernels/cuda/elementwise.h>
#include <tandem/kernels/cuda/index.h>
#include <tandem/kernels/memory.h>

// Floor: 8 bytes of index and two elements per element. By the element-wise walker: index and result in packs of 2, the
// input element by element.

namespace tandem::inline v0::kernels {

namespace {

template <class Item>
struct GatherFunctor {
  static constexpr int kOperands = 3;
  static constexpr int kBytes = sizeof(std::int64_t);

  Item* out;
  const std::int64_t* index;
  const Item* in;
  const std::int64_t* list;  // where the indices begin
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

}  // namespace

void run(OnCuda, Context& context, const Gather& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  switch (kernel.item_size) {
    case 1: return gather<std::uint8_t>(queue, kernel);
    case 2: return gather<std::uint16_t>(queue, kernel);
    case 4: return gather<std::uint32_t>(queue, kernel);
    case 8: return gather<std::uint64_t>(queue, kernel);
  }
}

}  // namespace tandem::inline v0::kernels
