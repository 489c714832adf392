#include <tandem/kernels/cuda/elementwise.h>
#include <tandem/kernels/cuda/index.h>
#include <tandem/kernels/memory.h>

// Floor: 2 bytes per byte of the result, and the indices once. Rows are moved in the largest units that they and both
// addresses have, up to 16 bytes; threads walk over all units of the result, four at once, so that rows of any length
// keep the memory busy.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

struct Rows {
  LongDivider columns;  // units of a row
  LongDivider count;    // rows of an outer position
  std::int64_t size;    // those of the input
  std::int64_t units;   // of the result
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

}  // namespace tandem::inline v0::kernels
