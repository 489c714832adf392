#pragma once

#include <tandem/kernels/pointwise.h>

// Internal: where pointwise.cpp finds what the .cu files compile.

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

using PointwiseLauncher = void (*)(const Queue&, const Pointwise&);

/// Where the table of a floating type is cut, so that no source takes long to compile.
inline constexpr PointwiseOp kFirstFunction = PointwiseOp::div;
inline constexpr PointwiseOp kSecondHalf = PointwiseOp::softplus;

/// The launcher for an op on T: one source for each half of each floating type, and of the 16-bit ones for each part.
template <class T>
PointwiseLauncher arithmetic_launcher(PointwiseOp op);
template <class T>
PointwiseLauncher functions_launcher(PointwiseOp op);
template <class T>
PointwiseLauncher gradients_launcher(PointwiseOp op);
/// The same for i64, i32 and u8, and ops up to kLastIntegerPointwise.
template <class T>
PointwiseLauncher integer_launcher(PointwiseOp op);

}  // namespace gpu
}  // namespace tandem::inline v0::kernels
