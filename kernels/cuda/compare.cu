#include <tandem/kernels/compare.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/math.h>

// Floors: compare reads two elements and writes a byte; where reads two elements and a byte and writes an element. Both
// use the element-wise walker. One compare kernel per type serves every op: the relation of a and b is a number from 0
// to 3, and an op is a set of these.

namespace tandem::inline v0::kernels {

namespace {

/// The relations in which an op holds, one bit each: unordered, less, equal, greater, or for truth values neither, a,
/// b, both.
unsigned int truth_of(CompareOp op) {
  using enum CompareOp;
  switch (op) {
    case eq: return 0b0100;
    case ne: return 0b1011;
    case lt: return 0b0010;
    case le: return 0b0110;
    case gt: return 0b1000;
    case ge: return 0b1100;
    case logical_and: return 0b1000;
    case logical_or: return 0b1110;
    case logical_xor: return 0b0110;
  }
  __builtin_unreachable();
}

template <class T>
struct CompareFunctor {
  using C = ComputeType<T>;
  static constexpr int kOperands = 3;
  static constexpr int kBytes = sizeof(T);

  bool* out;
  const T* a;
  const T* b;
  unsigned int truth;
  bool logical;

  const void* data(int i) const { return i == 0 ? static_cast<const void*>(out) : i == 1 ? a : b; }
  int size(int i) const { return i == 0 ? 1 : sizeof(T); }
  CompareFunctor advanced(const std::int64_t* offsets) const {
    return {out + offsets[0], a + offsets[1], b + offsets[2], truth, logical};
  }

  template <int V>
  struct Values {
    Pack<T, V> a, b;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    values.a = load_pack<V>(a + offsets[1], dense[1]);
    values.b = load_pack<V>(b + offsets[2], dense[2]);
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<bool, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C x = values.a.values[i];
      const C y = values.b.values[i];
      const unsigned int truths = (x != C(0) ? 1U : 0U) + (y != C(0) ? 2U : 0U);
      const unsigned int order = x < y ? 1U : x == y ? 2U : x > y ? 3U : 0U;
      result.values[i] = ((truth >> (logical ? truths : order)) & 1U) != 0;
    }
    *reinterpret_cast<Pack<bool, V>*>(out + offsets[0]) = result;
  }
};

template <class Item>
struct WhereFunctor {
  static constexpr int kOperands = 4;
  static constexpr int kBytes = sizeof(Item);

  Item* out;
  const std::uint8_t* condition;
  const Item* a;
  const Item* b;

  const void* data(int i) const {
    return i == 0 ? static_cast<const void*>(out) : i == 1 ? static_cast<const void*>(condition) : i == 2 ? a : b;
  }
  int size(int i) const { return i == 1 ? 1 : sizeof(Item); }
  WhereFunctor advanced(const std::int64_t* offsets) const {
    return {out + offsets[0], condition + offsets[1], a + offsets[2], b + offsets[3]};
  }

  template <int V>
  struct Values {
    Pack<std::uint8_t, V> condition;
    Pack<Item, V> a, b;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    values.condition = load_pack<V>(condition + offsets[1], dense[1]);
    values.a = load_pack<V>(a + offsets[2], dense[2]);
    values.b = load_pack<V>(b + offsets[3], dense[3]);
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<Item, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[i] = values.condition.values[i] != 0 ? values.a.values[i] : values.b.values[i];
    }
    *reinterpret_cast<Pack<Item, V>*>(out + offsets[0]) = result;
  }
};

template <class Item>
void select(const Queue& queue, const Where& kernel) {
  for_each(queue, Where::kName,
           WhereFunctor<Item>{kernel.out.as<Item>(), kernel.condition.as<const std::uint8_t>(),
                              kernel.a.as<const Item>(), kernel.b.as<const Item>()},
           kernel.loop, {kernel.out.strides, kernel.condition.strides, kernel.a.strides, kernel.b.strides});
}

}  // namespace

void run(OnCuda, Context& context, const Compare& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() {
    for_each(queue, Compare::kName,
             CompareFunctor<T>{kernel.out.as<bool>(), kernel.a.as<const T>(), kernel.b.as<const T>(),
                               truth_of(kernel.op), kernel.op >= CompareOp::logical_and},
             kernel.loop, {kernel.out.strides, kernel.a.strides, kernel.b.strides});
  });
}

void run(OnCuda, Context& context, const Where& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  switch (kernel.item_size) {
    case 1: return select<std::uint8_t>(queue, kernel);
    case 2: return select<std::uint16_t>(queue, kernel);
    case 4: return select<std::uint32_t>(queue, kernel);
    case 8: return select<std::uint64_t>(queue, kernel);
  }
}

}  // namespace tandem::inline v0::kernels
