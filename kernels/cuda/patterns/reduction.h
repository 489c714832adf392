#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/last_block.h>
#include <tandem/kernels/cuda/patterns/pack.h>
#include <tandem/kernels/cuda/patterns/reduction_plan.h>

// Reductions of operands with any strides: reduce, batch_norm and the gradients of layer_norm's weight and bias. A
// source defines how elements are read and combined. This header walks it over two loops: for every position of `kept`,
// over all positions of `reduced`. Each element is read once.
//
// Rows, if neighbours are reduced: a group of threads, from one thread to a block, has an output and reads packs next
// to each other.
// Columns, if neighbours are kept (a bias gradient): a thread has a pack of columns and walks down the rows. 32 threads
// side by side read 512 bytes of a row; the group's other threads read other rows.
// If outputs are too few to fill the GPU, the reduced loop is cut into parts, each for a block of its own. The last of
// an output's blocks to end combines the parts' totals. Orders depend only on sizes and on the number of
// multiprocessors, and so do results.
//
// A source has
//   Lane, Total         results of a few elements (kLaneElements) in their arithmetic, and of many
//   Column              the data of an output, made by column(output)
//   Values<V>           the values read at V neighbours by load<V>(offset, position); `position` is in reduced
//   add(Lane&, const Values<V>&, int i, position, const Column&)    takes in neighbour i, which is at `position`
//   join(Total, Lane)   a total with a lane's elements
//   combine(Total, Total)
//   store(output, Total)
// Total{} and Lane{} are the results of no elements.

namespace tandem::inline v0::kernels {

namespace reduction {

inline constexpr int kThreads = ReductionPlan::kThreads;
inline constexpr int kUnroll = 4;         // packs that a thread reads at once
inline constexpr int kLaneElements = 64;  // more would lose digits

template <class Source>
struct Combine {
  __device__ __forceinline__ typename Source::Total operator()(const typename Source::Total& a,
                                                               const typename Source::Total& b) const {
    return Source::combine(a, b);
  }
};

/// Where a block leaves the totals of its part of the reduced loop.
template <class Source>
struct Partial {
  typename Source::Total* totals = nullptr;  // [parts, outputs]
  unsigned int* tickets = nullptr;           // [blocks of a part]

  // Stores a part's total, or the result if there is only one part.
  __device__ __forceinline__ void finish(const Source& source, const ReductionPlan& plan, std::int64_t output,
                                         const typename Source::Total& total) const {
    if (plan.parts > 1) {
      totals[blockIdx.y * plan.outputs + output] = total;
    } else {
      source.store(output, total);
    }
  }
  // True if all parts of this block's outputs are there, and this block has to combine them.
  __device__ __forceinline__ bool is_last(const ReductionPlan& plan) const {
    return plan.parts > 1 && is_last_block(tickets + blockIdx.x, gridDim.y);
  }
  // Every `step`-th part's total of an output, from `first` on.
  __device__ __forceinline__ typename Source::Total combined(const ReductionPlan& plan, std::int64_t output, int first,
                                                             int step) const {
    typename Source::Total total{};
    for (int part = first; part < plan.parts; part += step) {
      total = Source::combine(total, totals[part * plan.outputs + output]);
    }
    return total;
  }
};

// Takes in a thread's packs from `first` to `end`, `step` apart. Calls add(lane, values, v, at) for each element v of
// the pack at `at`, and join(lane, v) after kLaneElements of them.
template <class Source, int V, class Add, class Join>
__device__ __forceinline__ void take_in(const Source& source, const ReductionPlan& plan, std::int64_t base,
                                        std::int64_t first, std::int64_t end, int step, Add&& add, Join&& join) {
  for (std::int64_t i = first; i < end;) {
    typename Source::Lane lanes[V] = {};
    for (int adds = 0; adds < kLaneElements && i < end; adds += kUnroll, i += kUnroll * step) {
      typename Source::template Values<V> values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {  // all reads come first, so that they are in flight together
        const std::int64_t at = i + u * step;
        if (at < end) {
          values[u] = source.template load<V>(base + plan.reduced.offset(at), at);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = i + u * step;
        if (at < end) {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            add(lanes[v], values[u], v, at);
          }
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      join(lanes[v], v);
    }
  }
}

template <class Source, int V>
__global__ void __launch_bounds__(kThreads, 2) rows(Source source, ReductionPlan plan, Partial<Source> partial) {
  using Lane = typename Source::Lane;
  using Total = typename Source::Total;
  const int group = plan.across;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int units = kThreads / group;
  const std::int64_t begin = blockIdx.y * plan.chunk;
  const std::int64_t end = begin + plan.chunk < plan.length ? begin + plan.chunk : plan.length;
  for (std::int64_t first = std::int64_t{blockIdx.x} * units; first < plan.outputs;
       first += std::int64_t{gridDim.x} * units) {
    const std::int64_t output = first + static_cast<int>(threadIdx.x) / group;
    Total total{};
    if (output < plan.outputs) {
      const auto column = source.column(output);
      const std::int64_t base = plan.kept.offset(output);
      take_in<Source, V>(
          source, plan, base, begin + lane, end, group,
          [&](Lane& sum, const auto& values, int v, std::int64_t at) {
            source.add(sum, values, v, at * V + v, column);
          },
          [&](const Lane& sum, int) { total = Source::join(total, sum); });
      if (V > 1 && blockIdx.y + 1 == gridDim.y && lane < plan.tail) {  // elements that fill no pack
        const std::int64_t at = plan.length * V + lane;
        Lane last{};
        source.add(last, source.template load<1>(base + at, at), 0, at, column);
        total = Source::join(total, last);
      }
    }
    total = group_reduce<kThreads>(total, group, Combine<Source>());
    if (lane == 0 && output < plan.outputs) {
      partial.finish(source, plan, output, total);
    }
  }
  if (!partial.is_last(plan)) {
    return;
  }
  for (std::int64_t first = std::int64_t{blockIdx.x} * units; first < plan.outputs;
       first += std::int64_t{gridDim.x} * units) {
    const std::int64_t output = first + static_cast<int>(threadIdx.x) / group;
    const Total mine = output < plan.outputs ? partial.combined(plan, output, lane, group) : Total{};
    const Total total = group_reduce<kThreads>(mine, group, Combine<Source>());
    if (lane == 0 && output < plan.outputs) {
      source.store(output, total);
    }
  }
}

// Combines the totals of `down` threads that are `across` apart, in the first of them.
template <class Source, int V>
__device__ __forceinline__ void combine_down(typename Source::Total (&totals)[V], int across, int down) {
  using Total = typename Source::Total;
  alignas(Total) __shared__ unsigned char memory[V * kThreads / 2 * sizeof(Total)];
  Total* moved = reinterpret_cast<Total*>(memory);
  const int group = across * down;
  const int unit = static_cast<int>(threadIdx.x) / group;
  const int in_unit = static_cast<int>(threadIdx.x) % group;
  for (int half = down / 2; half > 0; half /= 2) {
    const int giving = across * half;
    const int slot = unit * (group / 2) + (in_unit < giving ? in_unit : in_unit - giving);
    __syncthreads();
    if (in_unit >= giving && in_unit < 2 * giving) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        moved[v * (kThreads / 2) + slot] = totals[v];
      }
    }
    __syncthreads();
    if (in_unit < giving) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        totals[v] = Source::combine(totals[v], moved[v * (kThreads / 2) + slot]);
      }
    }
  }
}

template <class Source, int V>
__global__ void __launch_bounds__(kThreads, 2) columns(Source source, ReductionPlan plan, Partial<Source> partial) {
  using Lane = typename Source::Lane;
  using Total = typename Source::Total;
  const int group = plan.across * plan.down;
  const int across = static_cast<int>(threadIdx.x) % plan.across;
  const int down = static_cast<int>(threadIdx.x) % group / plan.across;
  const int units = kThreads / group;
  // Calls body(outer, pack, its first output, true if it exists) for this thread's packs of columns.
  const auto for_each_pack = [&](auto&& body) {
    for (std::int64_t first = std::int64_t{blockIdx.x} * units; first < plan.units;
         first += std::int64_t{gridDim.x} * units) {
      const std::int64_t unit = first + static_cast<int>(threadIdx.x) / group;
      const std::int64_t outer = plan.tiles.quotient(unit);
      const std::int64_t pack = (unit - outer * plan.tiles.divisor()) * plan.across + across;
      body(outer, pack, (outer * plan.columns + pack) * V, unit < plan.units && pack < plan.columns);
    }
  };
  const std::int64_t begin = blockIdx.y * plan.chunk;
  const std::int64_t end = begin + plan.chunk < plan.length ? begin + plan.chunk : plan.length;
  for_each_pack([&](std::int64_t outer, std::int64_t pack, std::int64_t output, bool valid) {
    Total totals[V] = {};
    if (valid) {
      typename Source::Column column[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        column[v] = source.column(output + v);
      }
      const std::int64_t base = plan.kept.offset(outer) + pack * V;
      take_in<Source, V>(
          source, plan, base, begin + down, end, plan.down,
          [&](Lane& sum, const auto& values, int v, std::int64_t at) { source.add(sum, values, v, at, column[v]); },
          [&](const Lane& sum, int v) { totals[v] = Source::join(totals[v], sum); });
    }
    combine_down<Source>(totals, plan.across, plan.down);
    if (down == 0 && valid) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        partial.finish(source, plan, output + v, totals[v]);
      }
    }
  });
  if (!partial.is_last(plan)) {
    return;
  }
  for_each_pack([&](std::int64_t, std::int64_t, std::int64_t output, bool valid) {
    Total totals[V] = {};
    if (valid) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        totals[v] = partial.combined(plan, output + v, down, plan.down);
      }
    }
    combine_down<Source>(totals, plan.across, plan.down);
    if (down == 0 && valid) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        source.store(output + v, totals[v]);
      }
    }
  });
}

}  // namespace reduction

/// Reduces a problem with the source, in packs of up to kWide if they fit. The first `reserved` bytes of the workspace
/// are left alone.
template <int kWide, class Source>
void reduce(const Queue& queue, const char* name, const Source& source, const ReductionProblem& problem,
            std::size_t reserved = 0) {
  using Total = typename Source::Total;
  const ReductionPlan plan(queue, problem, kWide);
  if (plan.outputs == 0) {
    return;
  }
  reduction::Partial<Source> partial;
  if (plan.parts > 1) {
    const std::size_t skipped = (reserved + 255) / 256 * 256;
    const auto totals = static_cast<std::size_t>(plan.parts) * static_cast<std::size_t>(plan.outputs);
    partial.totals =
        reinterpret_cast<Total*>(static_cast<char*>(queue.workspace(skipped + totals * sizeof(Total))) + skipped);
    partial.tickets = queue.tickets();
  }
  const dim3 blocks(plan.blocks, static_cast<unsigned>(plan.parts));
  const auto launch = [&](auto* kernel) {
    queue.launch(name, blocks, reduction::kThreads, 0, kernel, source, plan, partial);
  };
  const bool wide = plan.wide > 1;
  if (plan.by_columns) {
    launch(wide ? reduction::columns<Source, kWide> : reduction::columns<Source, 1>);
  } else {
    launch(wide ? reduction::rows<Source, kWide> : reduction::rows<Source, 1>);
  }
}

}  // namespace tandem::inline v0::kernels
