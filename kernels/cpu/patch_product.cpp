#include <tandem/kernels/cpu/patch_product.h>

#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::kernels::cpu {

namespace {

// Cycles that it takes to pack a vector, twice: the tile takes half a cycle for each of its rows.
constexpr std::int64_t kWide = 8;

// The blocks that the columns of patches are cut into.
class Blocks {
 public:
  explicit Blocks(const Patches& patches)
      : columns_(patches.positions() >= kOwnBlocks ? patches.positions() : patches.columns()),
        ranges_(patches.positions() >= kOwnBlocks ? patches.images : 1) {
    const std::int64_t most = columns_of_block(patches, kPatchColumns);
    in_range_ = up(columns_, most);
    size_ = std::min(up(up(columns_, in_range_), kStep) * kStep, most);
    in_range_ = up(columns_, size_);
  }

  std::int64_t count() const { return ranges_ * in_range_; }
  std::int64_t begin(std::int64_t block) const {
    return block / in_range_ * columns_ + std::min(block % in_range_ * size_, columns_);
  }
  std::int64_t end(std::int64_t block) const {
    return std::min(begin(block) + size_, (block / in_range_ + 1) * columns_);
  }

 private:
  static constexpr std::int64_t kStep = 32;
  std::int64_t columns_, ranges_;  // a range is an image, or all
  std::int64_t in_range_, size_;
};

// Writes the bias, or 0, to every place of a product without depth.
template <class T>
void write_bias(const PatchProduct& product, std::int64_t groups) {
  const Patches& patches = product.patches;
  for (std::int64_t i = 0; i < patches.images * groups * product.rows; ++i) {
    const std::int64_t channel = i % (groups * product.rows);
    const T value = product.bias != nullptr ? static_cast<const T*>(product.bias)[channel] : T(0);
    T* const out = offset<T>(product.out.data, i / (groups * product.rows) * product.out.image_stride +
                                                   channel * product.out.channel_stride);
    for (std::int64_t y = 0; y < patches.y.positions; ++y) {
      for (std::int64_t x = 0; x < patches.x.positions; ++x) {
        T& to = out[y * product.out.y_stride + x * product.out.x_stride];
        to = product.add ? to + value : value;
        to = product.relu && to < T(0) ? T(0) : to;
      }
    }
  }
}

// Positions along x to compute. Some behind the width cost less than to pack the vectors that hold the end of one line
// and the beginning of the next.
std::int64_t wide_positions(const PatchProduct& product) {
  constexpr std::int64_t kVector = 8;
  const PatchAxis& x = product.patches.x;
  if (product.patches.rows_first) {
    return up(x.positions, 2 * kVector) * 2 * kVector;  // a panel has one row
  }
  const std::int64_t more = std::min(x.high() - x.low(), up(x.positions, kVector) * kVector - x.positions);
  const bool pays = x.step == 1 && product.patches.y.step == 1 && product.rows * more < kWide * kVector &&
                    x.positions + more <= kPatchColumns;  // a longer line has blocks of its own
  return x.positions + (pays ? more : 0);
}

// Whether groups have one channel whose patches are lines of the image, and too few outputs to fill a tile.
bool is_depthwise(const Patches& patches, std::int64_t groups, std::int64_t outputs) {
  return groups > 1 && patches.channels == 1 && outputs <= 2 && patches.y.step == 1 && patches.x.step == 1 &&
         patches.x.taps <= kDepthwiseTaps;
}

}  // namespace

template <class T>
void multiply_groups(Context& context, PatchProduct product, std::int64_t groups) {
  Patches& patches = product.patches;
  if (patches.columns() == 0 || product.rows == 0) {
    return;
  }
  if (patches.depth() == 0) {
    return write_bias<T>(product, groups);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (is_depthwise(patches, groups, product.rows) && product.out.is_dense(patches)) {
      const std::int64_t work = product.rows * patches.positions() * patches.depth();
      return core::parallel_for(
          patches.images * groups, 1 + kChunkWork / (work + 1),
          [&](std::int64_t begin, std::int64_t end) { TANDEM_BY_ISA(depthwise_f32)(product, groups, begin, end); });
    }
  }
  if (has_own_product<T>()) {
    patches.x.positions = wide_positions(product);
  }
  const Blocks blocks(patches);
  const Device device = context.device;
  const auto multiply = [&](const PatchRange& range) {
    ScratchArena& scratch = context_for(device).scratch;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(patch_product_f32)(product, range, scratch);
    } else {
      TANDEM_BY_ISA(patch_product_f64)(product, range, scratch);
    }
  };
  // Groups of little work share what a block costs.
  const std::int64_t work = product.rows * patches.depth() * std::min(patches.columns(), kPatchColumns);
  const std::int64_t some = std::min(groups, 1 + kChunkWork / (work + 1));
  const std::int64_t of_groups = up(groups, some);
  const std::int64_t tasks = of_groups * blocks.count();
  core::parallel_for(tasks, 1 + kChunkWork / (work * some + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t block = task / of_groups;
      const std::int64_t group = task % of_groups * some;
      const PatchRange range{group, std::min(group + some, groups), blocks.begin(block), blocks.end(block)};
      if (range.begin < range.end) {
        multiply(range);
      }
    }
  });
}

template void multiply_groups<float>(Context&, PatchProduct, std::int64_t);
template void multiply_groups<double>(Context&, PatchProduct, std::int64_t);

}  // namespace tandem::inline v0::kernels::cpu
