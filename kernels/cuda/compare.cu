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

struct Holds {
  unsigned int truth;
  bool logical;

  template <class T>
  __device__ bool operator()(const T& a, const T& b) const {
    using C = ComputeType<T>;
    const C x = a;
    const C y = b;
    const unsigned int truths = (x != C(0) ? 1U : 0U) + (y != C(0) ? 2U : 0U);
    const unsigned int order = x < y ? 1U : x == y ? 2U : x > y ? 3U : 0U;
    return ((truth >> (logical ? truths : order)) & 1U) != 0;
  }
};

struct Chosen {
  template <class Item>
  __device__ Item operator()(std::uint8_t condition, const Item& a, const Item& b) const {
    return condition != 0 ? a : b;
  }
};

}  // namespace

void run(OnCuda, Context& context, const Compare& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() {
    const Holds holds{truth_of(kernel.op), kernel.op >= CompareOp::logical_and};
    compute_each<bool, T, T>(queue, Compare::kName, holds, kernel.loop, kernel.out, kernel.a, kernel.b);
  });
}

void run(OnCuda, Context& context, const Where& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  for_item(kernel.item_size, [&]<class Item>() {
    compute_each<Item, std::uint8_t, Item, Item>(queue, Where::kName, Chosen(), kernel.loop, kernel.out,
                                                 kernel.condition, kernel.a, kernel.b);
  });
}

}  // namespace tandem::inline v0::kernels
