#pragma once

// A device of compute capability 9.0 with few multiprocessors, so that grids sized by their number run faster.

namespace emulated_gpu::detail::limits {

inline constexpr int kMultiprocessors = 4;
inline constexpr int kThreads = 1024;
inline constexpr int kThreadsPerMultiprocessor = 2048;
inline constexpr int kBlocksPerMultiprocessor = 32;
inline constexpr int kRegisters = 65536;
inline constexpr int kShared = 48 << 10;
inline constexpr int kSharedOptIn = 227 << 10;
inline constexpr int kSharedPerMultiprocessor = 228 << 10;
inline constexpr int kSharedReserved = 1 << 10;  // per block
inline constexpr int kL2 = 50 << 20;
inline constexpr int kMaxGridX = 2147483647;
inline constexpr int kMaxGridYZ = 65535;

}  // namespace emulated_gpu::detail::limits
