#include <tandem/kernels/cpu/patches.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/patch_block.h>
#include <tandem/kernels/cpu/isa/patch_runs.h>

// The products of convolutions in f32, a block of columns at a time.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// The height of the tiles that so many rows are cut into.
TANDEM_SIMD std::int64_t tile_height(std::int64_t rows) { return up(rows, up(rows, kTileRows)); }

// All tiles of a panel: `tile` is its first one.
TANDEM_SIMD void multiply_panel(Tile tile, std::int64_t rows, ScatteredRight right, const float* starts,
                                const Epilogue& epilogue) {
  const std::int64_t height = tile_height(rows);
  right.starts = starts;
  for (std::int64_t row = 0; row < rows; row += height) {
    scattered_tile_function(min(height, rows - row))(tile, epilogue, right);
    right.starts = starts == nullptr ? nullptr : right.starts + height;
    tile.left += height * tile.left_stride;
    tile.out += height * tile.out_stride;
  }
}

}  // namespace

void patch_product_f32(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch) {
  const Patches& patches = product.patches;
  const std::int64_t depth = patches.depth();
  const std::int64_t positions = patches.positions();
  const std::int64_t cols = range.end - range.begin;
  const std::int64_t deepest = depth_of_block(patches, columns_of_block(patches, kPatchColumns), kDepth);
  const std::int64_t deep = up(depth, up(depth, deepest));
  const bool direct = positions >= kOwnBlocks && product.out.is_dense(patches);
  const ScratchScope scope(scratch);
  PatchBlock block(patches, range.begin, range.end);
  float* const slab = scratch.allocate_array<float>(block.slab_size(deep));
  float* const panels = scratch.allocate_array<float>(static_cast<std::size_t>(up(cols, kTileCols) * kTileCols * deep));
  const std::int64_t stride = up(cols, kLanes) * kLanes + kLanes;
  float* const sums = direct ? nullptr : scratch.allocate_array<float>(static_cast<std::size_t>(product.rows * stride));
  for (std::int64_t group = range.group; group < range.last_group; ++group) {
    const PatchProduct one = product.of_group<float>(group);
    const float* const weight = static_cast<const float*>(one.weight);
    const float* const bias = static_cast<const float*>(one.bias);
    float* out = sums;
    Tile tile{};
    tile.out_stride = stride;
    tile.left_stride = depth;
    if (direct) {
      out =
          static_cast<float*>(one.out.data) + range.begin / positions * one.out.image_stride + range.begin % positions;
      tile.out_stride = one.out.channel_stride;
      tile.is_out_far = one.out.image_stride * patches.images >= kFarOutputs;
    }
    for (std::int64_t k = 0; k < depth; k += deep) {
      tile.depth = min(deep, depth - k);
      block.begin(one.patches.data, k, tile.depth, slab);
      block.pack_panels(panels);
      const Epilogue epilogue{.add = k > 0 || (direct && product.add),
                              .relu = direct && product.relu && k + tile.depth == depth};
      const float* const starts = k == 0 ? bias : nullptr;
      // Along far outputs a row of tiles comes first: their lines are neighbours, in the same pages.
      const std::int64_t rows_at_once = tile.is_out_far ? tile_height(product.rows) : kBlockRows;
      for (std::int64_t row = 0; row < product.rows; row += rows_at_once) {
        for (std::int64_t col = 0; col < cols; col += kTileCols) {
          const auto [first, end] = block.reach(col / kTileCols);
          tile.left = weight + row * depth + k + first;
          tile.depth = end - first;
          tile.cols = min(kTileCols, cols - col);
          tile.out = out + row * tile.out_stride + col;
          multiply_panel(tile, min(rows_at_once, product.rows - row), block.panel(col / kTileCols, first),
                         starts == nullptr ? nullptr : starts + row, epilogue);
        }
      }
    }
    if (!direct) {
      place(one, range.begin, range.end, sums, stride, product.add);
    }
  }
}

namespace {

// Lines of patches that are read in place.
struct LinesOfRuns {
  const PatchRun* runs;
  std::int64_t num_runs;
};

// A tile of a gradient: rows of patches times a panel of the transposed gradient. Each sum is a chain in the order of
// the columns. A tile of one vector has too few of them to fill the multipliers, so there each run has two chains, of
// its even and its odd columns.
template <int kRows, int kVecs>
void multiply_runs(const LinesOfRuns& lines, const float* const* rows, const float* panel, std::int64_t cols,
                   float* out, std::int64_t stride, bool add) {
  constexpr int kChains = 2 / kVecs;
  Vec sum[kRows][2] = {};  // of each vector, or of each chain
  for (std::int64_t i = 0; i < lines.num_runs; ++i) {
    const PatchRun run = lines.runs[i];
    const float* from[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      from[r] = rows[r] + run.base;
    }
    const float* right = panel + run.begin * kTileCols;
    const std::int64_t length = run.end - run.begin;
    std::int64_t at = 0;
    for (; at + kChains <= length; at += kChains, right += kChains * kTileCols) {
      const Vec b[2] = {load(right), load(right + (kChains == 2 ? kTileCols : kLanes))};
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec a = broadcast(from[r][at]);
        sum[r][0] = fma(a, b[0], sum[r][0]);
        sum[r][1] = fma(kChains == 2 ? broadcast(from[r][at + 1]) : a, b[1], sum[r][1]);
      }
    }
    if (at < length) {
      const Vec b = load(right);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sum[r][0] = fma(broadcast(from[r][at]), b, sum[r][0]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, out += stride) {
    if (kChains == 2) {
      sum[r][0] += sum[r][1];
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const Mask lanes = first(cols - v * kLanes);
      store(out + v * kLanes, add ? load(out + v * kLanes, lanes) + sum[r][v] : sum[r][v], lanes);
    }
  }
}

using MultiplyRuns = void (*)(const LinesOfRuns&, const float* const*, const float*, std::int64_t, float*, std::int64_t,
                              bool);
constexpr int kRunRows = kLanes == 16 ? 8 : 6;  // more rows than that have no registers for their addresses

MultiplyRuns runs_function(std::int64_t rows, std::int64_t cols) {
  static constexpr auto kFunctions = []<int... row>(std::integer_sequence<int, row...>) {
    return std::array<std::array<MultiplyRuns, sizeof...(row)>, 2>{
        std::array<MultiplyRuns, sizeof...(row)>{&multiply_runs<row + 1, 1>...},
        std::array<MultiplyRuns, sizeof...(row)>{&multiply_runs<row + 1, 2>...}};
  }(std::make_integer_sequence<int, kRunRows>());
  return kFunctions[cols <= kLanes ? 0 : 1][static_cast<std::size_t>(rows - 1)];
}

// All tiles of a block of `rows` lines of the depth that was begun.
void multiply_lines(const PatchBlock& block, const LinesOfRuns& lines, std::int64_t rows, const float* right,
                    std::int64_t count, std::int64_t cols, float* out, std::int64_t stride, bool add) {
  const std::int64_t height = up(rows, up(rows, kRunRows));
  for (std::int64_t col = 0; col < cols; col += kTileCols) {
    const std::int64_t wide = min(kTileCols, cols - col);
    for (std::int64_t row = 0; row < rows; row += height) {
      const std::int64_t high = min(height, rows - row);
      const float* of_rows[kRunRows];
      for (std::int64_t r = 0; r < high; ++r) {
        of_rows[r] = block.line(row + r);
      }
      runs_function(high, wide)(lines, of_rows, right + col * count, wide, out + row * stride + col, stride, add);
    }
  }
}

// The rows of the gradient for some columns, kLeftStride apart.
void pack_grad_rows(const PatchGradient& gradient, std::int64_t column, std::int64_t count, float* to) {
  const float* const grad = static_cast<const float*>(gradient.grad);
  for_each_run(gradient.patches, true, column, column + count, [&](std::int64_t at, const Run& run) {
    pack_rows<FloatUnits>(grad + run.image * gradient.grad_image_stride + run.position, gradient.patches.positions(),
                          gradient.rows, run.count, to + at);
  });
}

// Shorter runs than that are packed: they end too often.
constexpr std::int64_t kShortRun = 4;

}  // namespace

void patch_gradient_f32(const PatchGradient& gradient, const GradientRange& range, float* sums, ScratchArena& scratch) {
  const Patches& patches = gradient.patches;
  const std::int64_t positions = patches.positions();
  const std::int64_t depth = patches.depth();
  const std::int64_t rows = gradient.rows;
  const ScratchScope scope(scratch);
  const std::int64_t right_cols = range.like_weights ? kBlockRows : rows;
  float* const right = scratch.allocate_array<float>(
      static_cast<std::size_t>(up(right_cols, kTileCols) * kTileCols * (kDepth + kLanes)));
  float* const left = scratch.allocate_array<float>(left_size(kBlockRows));
  float* const lines = scratch.allocate_array<float>(static_cast<std::size_t>(rows * kLeftStride));
  const std::int64_t most = columns_of_block(patches, kDepth);
  const std::int64_t high = min(kBlockRows, depth_of_block(patches, most, kDepth));
  for (std::int64_t column = range.begin; column < range.end; column += most) {
    const std::int64_t count = min(most, range.end - column);
    const std::int64_t position = column % positions;
    const ScratchScope block_scope(scratch);
    PatchBlock block(patches, column, column + count);
    float* const slab = scratch.allocate_array<float>(block.slab_size(high));
    PatchRun runs[kDepth];
    const LinesOfRuns lines_of{runs, block.runs(runs)};
    const bool packs = count < kShortRun * lines_of.num_runs;
    for (std::int64_t group = range.group; group < range.last_group; ++group) {
      const PatchGradient one = gradient.of_group<float>(group);
      const float* const grad = static_cast<const float*>(one.grad);
      if (range.like_weights) {
        pack_grad_rows(one, column, count, lines);
      } else if (position + count <= positions) {
        pack_transposed<FloatUnits>(grad + column / positions * one.grad_image_stride + position, positions, count,
                                    rows, right);
      } else {
        pack_grad_rows(one, column, count, lines);
        pack_transposed<FloatUnits>(lines, kLeftStride, count, rows, right);
      }
      for (std::int64_t row = range.first; row < range.last; row += high) {
        const std::int64_t here = min(high, range.last - row);
        float* const out = sums + (group * depth + row) * rows;
        block.begin(one.patches.data, row, here, slab);
        if (range.like_weights) {
          block.pack_rows(left);
          pack_transposed<FloatUnits>(left, kLeftStride, count, here, right);
          multiply_block<FloatUnits>(Left<float>{lines, kLeftStride, 1}, rows, count, nullptr,
                                     {right, kTileCols, kTileCols * count}, here,
                                     {.data = sums + group * depth * rows + row,
                                      .stride = depth,
                                      .epilogue = {.add = range.add || column > range.begin},
                                      .is_far = rows * depth >= kFarOutputs});
          continue;
        }
        if (!packs) {
          multiply_lines(block, lines_of, here, right, count, rows, out, rows, column > range.begin);
          continue;
        }
        block.pack_rows(left);
        multiply_block<FloatUnits>(Left<float>{left, kLeftStride, 1}, here, count, nullptr,
                                   {right, kTileCols, kTileCols * count}, rows,
                                   {out, rows, {.add = column > range.begin}});
      }
    }
  }
}

void add_transposed_f32(const float* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows,
                        std::int64_t cols, bool add, float* out) {
  for (std::int64_t col = 0; col < cols; col += kLanes) {
    const std::int64_t wide = min(kLanes, cols - col);
    for (std::int64_t row = 0; row < rows; row += kLanes) {
      const std::int64_t high = min(kLanes, rows - row);
      alignas(64) float square[kLanes * kLanes];
      for (std::int64_t r = 0; r < high; ++r) {
        const float* from = matrices + (row + r) * cols + col;
        Vec sum = load(from, first(wide));
        for (std::int64_t part = 1; part < parts; ++part) {
          sum += load(from + part * stride, first(wide));
        }
        store(square + r * kLanes, sum);
      }
      transpose_square(square, kLanes, high, wide, [&](std::int64_t c, Vec v) {
        float* to = out + (col + c) * rows + row;
        store(to, add ? load(to, first(high)) + v : v, first(high));
      });
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
