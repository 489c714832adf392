#pragma once

#include <cstdint>

#include <tandem/kernels/matmul.h>
#include <tandem/tensor/view.h>

// Internal: a weight's gradient as a product that nobody has computed yet.

namespace tandem::inline v0::autograd {

/// A captured step with CaptureOptions::fuse_update leaves this for the optimiser, whose update computes the product on
/// its way. Whoever asks for the gradient before that gets it: the product is computed then, see Leaf::settle().
struct PostponedGradient {
  kernels::Matmul product;
  detail::View a, b;  // hold the memory of the operands
  std::uint32_t a_version, b_version;

  PostponedGradient(const kernels::Matmul& of, const detail::View& left, const detail::View& right)
      : product(of), a(left), b(right), a_version(left.storage->version()), b_version(right.storage->version()) {}
  bool is_changed() const { return a.storage->version() != a_version || b.storage->version() != b_version; }
};

}  // namespace tandem::inline v0::autograd
