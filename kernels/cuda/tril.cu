#include <type_traits>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/dense.h>
#include <tandem/kernels/cuda/patterns/geometry.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/tril.h>

// Floor: each element is written once, and each that is kept is read once. Pieces are read even above the diagonal,
// where they share a piece with an element below it.

namespace tandem::inline v0::kernels {

namespace {

template <class T>
struct Triangle {
  static constexpr int kPiece = 16 / sizeof(T);

  const T* in;
  T* out;
  bool accumulate;
  std::int64_t diagonal;
  WideDivider by_columns, by_rows;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    std::int64_t row = by_columns.quotient(first);
    std::int64_t j = first - row * by_columns.divisor();
    std::int64_t i = row - by_rows.quotient(row) * by_rows.divisor();
    bool kept[kPiece];
    bool any = false;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      kept[k] = k < n && j - i <= diagonal;
      any = any || kept[k];
      if (++j == by_columns.divisor()) {
        j = 0;
        i = i + 1 == by_rows.divisor() ? 0 : i + 1;
      }
    }
    if (accumulate && !any) {
      return;
    }
    Pack<T, kPiece> values{};
    if (any) {
      values = load_piece<kPiece>(in + first, n, whole);
    }
    Pack<T, kPiece> before{};
    if (accumulate) {
      before = load_piece<kPiece>(out + first, n, whole);
    }
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      const T value = kept[k] ? values.values[k] : T(0);
      if constexpr (std::is_integral_v<T>) {
        values.values[k] = value;
      } else {
        values.values[k] = accumulate ? T(wrapping_add<ComputeType<T>>(before.values[k], value)) : value;
      }
    }
    store_piece(out + first, values, n, whole);
  }
};

template <class T>
void tril(const Queue& queue, const Tril& kernel) {
  const Triangle<T> triangle{.in = static_cast<const T*>(kernel.in),
                             .out = static_cast<T*>(kernel.out),
                             .accumulate = kernel.accumulate == Accumulate::yes,
                             .diagonal = kernel.diagonal,
                             .by_columns = WideDivider(kernel.columns),
                             .by_rows = WideDivider(kernel.rows)};
  for_each_piece(queue, Tril::kName, triangle, kernel.outer * kernel.rows * kernel.columns,
                 aligned_for<Triangle<T>::kPiece>(triangle.in) && aligned_for<Triangle<T>::kPiece>(triangle.out));
}

}  // namespace

void run(OnCuda, Context& context, const Tril& kernel) {
  if (kernel.outer == 0 || kernel.rows == 0 || kernel.columns == 0) {
    return;
  }
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() { tril<T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
