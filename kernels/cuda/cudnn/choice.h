#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tandem/core/function_ref.h>
#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/kernel_library.h>

// Internal: which library runs a kernel, where both could.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// Kernels that are as fast as each other: the op, its type and flags, the orders of its sizes.
using ShapeClass = std::array<std::int64_t, 8>;
inline constexpr std::int64_t kSoftmaxClass = 0;
inline constexpr std::int64_t kActivationClass = 1;
inline std::int64_t order_of(std::int64_t size) noexcept {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(size)));
}

/// Runs a kernel with the results in other memory.
struct Trial {
  core::FunctionRef<void(void* out)> own;
  core::FunctionRef<bool(const Queue& queue, void* out)> cudnn;  // false: cuDNN has no such kernel
  std::size_t out_bytes;
};

/// Whether this thread is timing kernels: tandem's are to run then.
bool is_timing() noexcept;

/// Whether cuDNN is faster; known from the first call for a class on. That one waits for the GPU; false, for now, where
/// it can't, since the queue's work is being captured or scratch memory is out.
bool cudnn_is_faster(const Queue& queue, Context& context, const ShapeClass& shape_class, const Trial& trial);

}  // namespace tandem::inline v0::kernels::gpu::cudnn
