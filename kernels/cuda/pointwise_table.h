#pragma once

#include <tandem/kernels/pointwise.h>

// Declares for pointwise.cpp the tables that are compiled from pointwise_kernels.h.

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

using PointwiseLauncher = void (*)(const Queue&, const Pointwise&);

/// The table of a floating type is cut before these ops, so that no source takes long to compile.
inline constexpr PointwiseOp kFirstFunction = PointwiseOp::div;
inline constexpr PointwiseOp kSecondHalf = PointwiseOp::softplus;

/// The launcher for an op on T. A floating type has its ops in these three tables.
template <class T>
PointwiseLauncher arithmetic_launcher(PointwiseOp op);
template <class T>
PointwiseLauncher function_launcher(PointwiseOp op);
template <class T>
PointwiseLauncher gradient_launcher(PointwiseOp op);
/// The launcher for an op on i64, i32 or u8, up to kLastIntegerPointwise.
template <class T>
PointwiseLauncher integer_launcher(PointwiseOp op);

}  // namespace gpu
}  // namespace tandem::inline v0::kernels
