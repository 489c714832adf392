#include <tandem/kernels/cpu/winograd.h>

#include <algorithm>

#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/patch_product.h>

namespace tandem::inline v0::kernels::cpu {

namespace {

// Elements of a block's transformed tiles, so that they stay in the second-level cache.
constexpr std::int64_t kBlock = std::int64_t{1} << 16;
constexpr std::int64_t kLeastTiles = 64;
// Transformed elements and outputs of a block that is as wide as an image, so that they fit in the scratch memory.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 18;
// Outputs of a part, at the least: each part transforms its tiles for itself.
constexpr std::int64_t kOutputs = 64;

bool is_window_of_three(const PatchAxis& axis) {
  return axis.taps == 3 && axis.step == 1 && (axis.tap_step == 1 || axis.tap_step == -1) && axis.low() <= 0 &&
         axis.low() >= -2 && axis.size - axis.low() <= axis.positions + 2;
}

// The blocks that the tiles are cut into: of whole images, or of rows of tiles of one.
class TileBlocks {
 public:
  TileBlocks(const Patches& patches, std::int64_t most_tiles)
      : images_(patches.images), high_(WinogradTiles(patches).high) {
    const std::int64_t rows = std::max<std::int64_t>(1, most_tiles / WinogradTiles(patches).wide);
    rows_ = up(high_, up(high_, rows));
    in_image_ = up(high_, rows_);
    some_images_ = in_image_ > 1 ? 1 : up(images_, up(images_, rows / high_));
  }

  std::int64_t count() const { return up(images_, some_images_) * in_image_; }

  // The block for outputs [first, last).
  WinogradRange at(std::int64_t block, std::int64_t first, std::int64_t last) const {
    const std::int64_t image = block / in_image_ * some_images_;
    const std::int64_t row = block % in_image_ * rows_;
    return {image, std::min(some_images_, images_ - image), row, std::min(rows_, high_ - row), first, last};
  }

 private:
  std::int64_t images_, high_;
  std::int64_t some_images_, rows_;  // of a block
  std::int64_t in_image_;            // blocks of an image
};

// The tiles that a block has at most, unless one row of an image has more.
std::int64_t tiles_of_block(std::int64_t numbers) {
  return std::max(kLeastTiles, kBlock / (kWinogradPlaces * numbers));
}

}  // namespace

bool takes_winograd(const Patches& patches, std::int64_t outputs) {
  constexpr std::int64_t kCached = std::int64_t{1} << 17;  // so many windows stay in a cache when transformed
  constexpr std::int64_t kMost = std::int64_t{1} << 20;    // so many fit in the scratch memory
  const std::int64_t windows = patches.channels * outputs;
  const WinogradTiles tiles(patches);
  const std::int64_t least = windows <= kCached ? 8 : 96;
  return core::isa() != core::Isa::baseline && is_window_of_three(patches.y) && is_window_of_three(patches.x) &&
         patches.y.tap_step == patches.x.tap_step && patches.y.positions > 1 && patches.x.positions > 1 &&
         patches.channels >= 8 && outputs >= 8 && windows >= 256 && windows <= kMost &&
         patches.images * tiles.high * tiles.wide >= least &&
         std::max(tiles.wide, kLeastTiles) * (patches.channels + outputs) <= kMostNumbers;
}

void multiply_winograd(Context& context, const PatchProduct& product, const WindowStrides& strides,
                       std::int64_t groups) {
  const Patches& patches = product.patches;
  const std::int64_t channels = patches.channels;
  const std::int64_t size = kWinogradPlaces * channels * winograd_stride(product.rows);
  const ScratchScope scope(context.scratch);
  float* const transformed = context.scratch.allocate_array<float>(static_cast<std::size_t>(size));
  const TileBlocks blocks(patches, tiles_of_block(channels));
  // Few blocks are cut by outputs, too, for several threads.
  const std::int64_t parts = std::clamp<std::int64_t>(4 / blocks.count(), 1, up(product.rows, kOutputs));
  const std::int64_t outputs = up(product.rows, parts);
  const std::int64_t work = kWinogradPlaces * channels * outputs * tiles_of_block(channels);
  const Device device = context.device;
  for (std::int64_t group = 0; group < groups; ++group) {
    const PatchProduct one = product.of_group<float>(group);
    core::parallel_for(channels, 1 + kChunkWork / (64 * product.rows), [&](std::int64_t begin, std::int64_t end) {
      TANDEM_BY_FMA_ISA(winograd_windows_f32)(one, strides, begin, end, transformed);
    });
    core::parallel_for(blocks.count() * parts, 1 + kChunkWork / work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task % parts * outputs;
        const WinogradRange range = blocks.at(task / parts, first, std::min(first + outputs, product.rows));
        TANDEM_BY_FMA_ISA(winograd_product_f32)(one, transformed, range, context_for(device).scratch);
      }
    });
  }
}

void winograd_gradient(Context& context, const PatchGradient& gradient, std::int64_t groups, bool add, float* out) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  constexpr std::int64_t kTiles = 256;
  constexpr std::int64_t kMost = 16;
  const Patches& patches = gradient.patches;
  const std::int64_t channels = patches.channels;
  const std::int64_t rows = gradient.rows;
  const WinogradTiles tiles(patches);
  const std::int64_t size = kWinogradPlaces * rows * channels;
  const TileBlocks blocks(patches, 2 * tiles_of_block(channels + std::min(rows, kOutputs)));
  // Parts of the blocks, whose sums are added in the end: by sizes, so that threads change no bit. If they are few,
  // they are cut by outputs, too.
  const std::int64_t most = std::clamp<std::int64_t>(kBytes / (size * std::int64_t{sizeof(float)}), 1, kMost);
  const std::int64_t wanted = std::clamp<std::int64_t>(patches.images * tiles.high * tiles.wide / kTiles, 1, most);
  const std::int64_t some_blocks = up(blocks.count(), wanted);
  const std::int64_t parts = up(blocks.count(), some_blocks);
  const std::int64_t row_parts = std::clamp<std::int64_t>(4 / parts, 1, up(rows, kOutputs));
  const std::int64_t some_rows = up(rows, row_parts);
  const ScratchScope scope(context.scratch);
  float* const sums = context.scratch.allocate_array<float>(static_cast<std::size_t>(parts * size));
  const Device device = context.device;
  for (std::int64_t group = 0; group < groups; ++group) {
    const PatchGradient one = gradient.of_group<float>(group);
    core::parallel_for(parts * row_parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t part = task / row_parts;
        const std::int64_t row = task % row_parts * some_rows;
        const std::int64_t first = part * some_blocks;
        const std::int64_t last = std::min(first + some_blocks, blocks.count());
        for (std::int64_t block = first; block < last; ++block) {
          TANDEM_BY_FMA_ISA(winograd_gradient_f32)
          (one, blocks.at(block, row, std::min(row + some_rows, rows)), block > first, sums + part * size,
           context_for(device).scratch);
        }
      }
    });
    core::parallel_for(rows, 1 + kChunkWork / (64 * parts * channels), [&](std::int64_t begin, std::int64_t end) {
      TANDEM_BY_FMA_ISA(winograd_window_grads_f32)
      (one, sums, parts, begin, end, add, out + group * rows * channels * 9);
    });
  }
}

}  // namespace tandem::inline v0::kernels::cpu
