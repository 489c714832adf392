#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>

#include <tandem/core/thread_pool.h>
#include <tandem/kernels/loop.h>
#include <tandem/kernels/scratch.h>

// How CPU kernels walk memory. Chunk sizes are constants, because results must not depend on the number of threads.

namespace tandem::inline v0::kernels::cpu {

/// Elements that an element-wise kernel computes per chunk: some 10 us of work, well above the cost of handing a chunk
/// to a thread.
inline constexpr std::int64_t kElementChunk = 32768;
/// Elements per chunk out of `count`: close to kElementChunk, with the same number of chunks for each thread. Only for
/// results that do not depend on the cut. A thread then has the same part of a small tensor in every op, and finds it
/// in its cache.
inline std::int64_t element_grain(std::int64_t count) {
  if (count <= kElementChunk) {
    return kElementChunk;
  }
  constexpr std::int64_t kAligned = 64;  // no two chunks share a cache line, and only the last vector loop has a tail
  const std::int64_t threads = core::ThreadPool::instance().share();
  const std::int64_t rounds = (count + threads * kElementChunk - 1) / (threads * kElementChunk);
  const std::int64_t grain = (count + threads * rounds - 1) / (threads * rounds);
  return (grain + kAligned - 1) / kAligned * kAligned;
}
/// Like kElementChunk, for elements that take an exponential or a logarithm each.
inline constexpr std::int64_t kExponentialChunk = 8192;

/// Rows per chunk, if each of their elements takes an exponential.
inline std::int64_t exponential_rows(std::int64_t row_size) noexcept { return 1 + kExponentialChunk / (row_size + 1); }

/// Joins part(begin, end) of all chunks of `count` elements to `first`, in the order of the chunks.
template <class T, class Part, class Join = std::plus<>>
T join_chunks(ScratchArena& scratch, std::int64_t count, std::int64_t chunk, T first, const Part& part,
              const Join& join = {}) {
  const ScratchScope scope(scratch);
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  T* parts = scratch.allocate_array<T>(static_cast<std::size_t>(chunks));
  core::parallel_for(count, chunk,
                     [&](std::int64_t begin, std::int64_t end) { parts[begin / chunk] = part(begin, end); });
  return std::accumulate(parts, parts + chunks, first, join);
}

/// The operand with its strides in bytes, so that rows of different types can be walked as std::byte.
inline Operand in_bytes(Operand operand, std::size_t item_size) noexcept {
  for (std::int64_t& stride : operand.strides) {
    stride *= static_cast<std::int64_t>(item_size);
  }
  return operand;
}

/// Calls row(pointers, count) for each row (innermost dimension) of `loop`; pointers[i] is the start of operand i. A
/// loop that is one dense row is cut into chunks.
template <class T, int kOperands, class Row>
void for_each_row(const Loop& loop, const Operand* const (&operands)[kOperands], Row&& row) {
  const int last = loop.ndim - 1;
  const std::int64_t count = loop.sizes[last];
  if (last == 0) {
    core::parallel_for(count, element_grain(count), [&](std::int64_t begin, std::int64_t end) {
      T* pointers[kOperands];
      for (int i = 0; i < kOperands; ++i) {
        pointers[i] = operands[i]->template as<T>() + begin * operands[i]->strides[0];
      }
      row(pointers, end - begin);
    });
    return;
  }
  std::int64_t rows = 1;
  for (int dim = 0; dim < last; ++dim) {
    rows *= loop.sizes[dim];
  }
  if (count == 0) {
    return;
  }
  const std::int64_t grain = count >= kElementChunk ? 1 : kElementChunk / count;
  core::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t position[kMaxDims] = {};
    T* pointers[kOperands];
    std::int64_t rest = begin;
    for (int i = 0; i < kOperands; ++i) {
      pointers[i] = operands[i]->template as<T>();
    }
    for (int dim = last - 1; dim >= 0; --dim) {
      position[dim] = rest % loop.sizes[dim];
      rest /= loop.sizes[dim];
      for (int i = 0; i < kOperands; ++i) {
        pointers[i] += position[dim] * operands[i]->strides[dim];
      }
    }
    for (std::int64_t r = begin; r < end; ++r) {
      row(pointers, count);
      for (int dim = last - 1; dim >= 0; --dim) {  // counts up like an odometer
        const bool carry = ++position[dim] == loop.sizes[dim];
        for (int i = 0; i < kOperands; ++i) {
          pointers[i] += carry ? -(loop.sizes[dim] - 1) * operands[i]->strides[dim] : operands[i]->strides[dim];
        }
        if (!carry) {
          break;
        }
        position[dim] = 0;
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels::cpu
