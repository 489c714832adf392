#pragma once

#include <cstdint>
#include <span>

#include <tandem/core/device.h>
#include <tandem/parallel/comm/collective.h>

// Internal: reductions, and how ranks share their work.

namespace tandem::inline v0::parallel {

/// Reduces `count` elements of every rank, in the order of ranks, by the call's dtype and op, and writes the result to
/// each of `out`. Runs kernels::Combine on `device`. If the values are sums over several ranks, `ranks` is the number
/// of all ranks, by which avg divides.
void combine(const Collective& call, Device device, std::span<const void* const> in, std::span<void* const> out,
             std::int64_t count, int ranks = 0);

/// Converts `count` elements in memory of the CPU.
void convert(DType from, const void* in, DType to, void* out, std::int64_t count);

/// Elements of a tensor.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
/// The part of `numel` elements that one of `ranks` ranks combines for all. It begins at a multiple of 64, so that no
/// two ranks write to one cache line of a tensor that begins at one.
Slice slice_of(int rank, int ranks, std::int64_t numel);

}  // namespace tandem::inline v0::parallel
