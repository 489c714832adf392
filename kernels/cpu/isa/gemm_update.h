#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/cpu/isa/gemm_units.h>

// The optimiser's step for a block of a product, whose outputs are gradients. A block's gradients stay in the
// second-level cache from the product to the step. Long rows of weights get there while the product is computed; of
// short ones the beginnings are fetched, two rows before their step. The first two rows of a block are not fetched.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

// Calls visit() for each array that a loop changes.
template <class Step, class Visit>
TANDEM_SIMD void for_each_kept(Step& loop, Visit&& visit) {
  const auto present = [&](auto& kept) {
    if (kept != nullptr) {
      visit(kept);
    }
  };
  visit(loop.param);
  if constexpr (requires { loop.buffer; }) {
    present(loop.buffer);
  } else {
    visit(loop.m);
    visit(loop.v);
    present(loop.largest);
  }
}

/// An update, the element of its arrays that belongs to an output, and how far the next row's is.
struct UpdateAt {
  const TileUpdate* update = nullptr;
  std::int64_t element = 0;
  std::int64_t stride = 0;
  bool add = false;  // what the update's `grad` holds belongs to the gradients

  UpdateAt at(std::int64_t row, std::int64_t col) const { return {update, element + row * stride + col, stride, add}; }
};

/// The gradients of a block.
struct BlockGradients {
  float* data;
  std::int64_t stride;  // between rows
  std::int64_t rows, cols;
};

inline constexpr std::int64_t kLineFloats = 16;  // of a cache line

template <class Loop>
void fetch_rows(const Loop& loop, const UpdateAt& to, std::int64_t rows, std::int64_t cols) {
  for_each_kept(loop, [&](const float* kept) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; c += kLineFloats) {
        own_line(kept + to.at(r, c).element);
      }
    }
  });
}

template <class Loop>
void update_rows(const Loop& of, const UpdateAt& to, const BlockGradients& block) {
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t at = to.at(r, 0).element;
    float* const row = block.data + r * block.stride;
    if (to.add) {
      for (std::int64_t c = 0; c < block.cols; c += kLanes) {
        store(row + c, load(row + c) + load(of.grad + at + c, first(block.cols - c)));
      }
    }
    constexpr std::int64_t kRowsAhead = 2;
    if (!to.update->long_rows && r + kRowsAhead < block.rows) {
      fetch_rows(of, to.at(r + kRowsAhead, 0), 1, min(block.cols, 4 * kLineFloats));
    }
    Loop part = of;
    part.grad = row;
    for_each_kept(part, [&](auto*& kept) { kept += at; });
    to.update->scaled ? part.template run<true>(0, block.cols) : part.template run<false>(0, block.cols);
  }
}

/// Takes the step for a block.
inline void update_block(const UpdateAt& to, const BlockGradients& block) {
  to.update->sgd != nullptr ? update_rows(*to.update->sgd, to, block) : update_rows(*to.update->adam, to, block);
}

/// Fetches the weights of a tile before their update.
inline void fetch_tile(const UpdateAt& to, std::int64_t rows, std::int64_t cols) {
  to.update->sgd != nullptr ? fetch_rows(*to.update->sgd, to, rows, cols)
                            : fetch_rows(*to.update->adam, to, rows, cols);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
