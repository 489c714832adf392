#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tandem/kernels/cpu/isa/gemm_block.h>
#include <tandem/kernels/cpu/patches.h>

// A block of a convolution's patches, in the order in which tiles read it. Vectors along the columns are loaded from
// where the images lie, if no window stands over a border and its positions are neighbours; otherwise from a copy of
// the lines that the block needs, the slab, which has zeros around and neighbours side by side.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Columns [begin, end) of a block that lie side by side; `base` is where the first one lies.
struct PatchRun {
  std::int64_t base;
  std::int64_t begin, end;
};

/// The lanes that are set in a or b: each is 0 in one of the two.
TANDEM_SIMD Vec either(Vec a, Vec b) { return from_bits(bits_of(a) | bits_of(b)); }

/// Where the lines of a packed panel lie.
inline constexpr auto kPackedOffsets = [] {
  std::array<std::int64_t, kDepth> offsets{};
  for (std::int64_t k = 0; k < kDepth; ++k) {
    offsets[static_cast<std::size_t>(k)] = k * kTileCols;
  }
  return offsets;
}();

/// See above. For one thread.
class PatchBlock {
 public:
  /// Columns [begin, end), at most kPatchColumns.
  PatchBlock(const Patches& patches, std::int64_t begin, std::int64_t end)
      : of_(patches), begin_(begin), columns_(end - begin) {
    const std::int64_t wide = of_.x.positions;
    const std::int64_t last = end - 1;
    is_one_row_ = begin / wide == last / wide;
    first_x_ = is_one_row_ && of_.width == wide ? begin % wide : 0;
    in_place_ = of_.x.step == 1 && of_.x.is_inside() && of_.y.is_inside() && of_.width == wide;
    const std::int64_t spread = of_.x.high() - of_.x.low();
    part_ = ((is_one_row_ && of_.width == wide ? columns_ : of_.width) - 1) + spread / of_.x.step + 1;
    pitch_ = part_ * of_.x.step;
    add_segments(begin, end);
    // Not a power of two lines, so that channels do not share cache sets.
    slab_stride_ = (up(slab_rows_ * pitch_, kLine) | 1) * kLine;
    reads_lines_ = !in_place_ || stay_close(up(kDepth, of_.taps()), of_.y.size * of_.x.size);
  }

  /// Floats of the slab for a depth of at most `deepest`. 0: there is none.
  std::size_t slab_size(std::int64_t deepest) const {
    const std::int64_t channels = of_.rows_first ? of_.channels : min(of_.channels, up(deepest, of_.taps()) + 1);
    // The last vectors may stand over: when it is filled, and by positions behind the width.
    return in_place_ ? 0 : static_cast<std::size_t>(channels * slab_stride_ + part_ + kTileCols);
  }

  /// Prepares the depth of [k, k + count), at most kDepth, of a group whose images are at `data`.
  void begin(const void* data, std::int64_t k, std::int64_t count, float* slab) {
    const std::int64_t taps = of_.taps();
    const std::int64_t channel = of_.rows_first ? 0 : k / taps;
    const std::int64_t plane = of_.y.size * of_.x.size;
    data_ = static_cast<const float*>(data) + channel * plane;
    std::int64_t channel_stride = plane;
    if (!in_place_) {
      channel_stride = slab_stride_;
      if (!of_.rows_first) {
        fill_slab(data_, up(k + count, taps) - channel, slab);
      } else if (k == 0) {
        fill_slab(data_, of_.channels, slab);
      }
      data_ = slab;
    }
    if (begun_ == k && count_ == count) {
      return;  // the offsets are those of the group before
    }
    begun_ = k;
    count_ = count;
    // Counts (channel, y, x) from k on, or (y, channel, x).
    std::int64_t x = k % of_.x.taps;
    std::int64_t y = k / of_.x.taps % of_.y.taps;
    std::int64_t c = 0;
    if (of_.rows_first) {
      c = k / of_.x.taps % of_.channels;
      y = k / of_.x.taps / of_.channels;
    }
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t of_line = c * channel_stride + line_offset(y);
      for (; x < of_.x.taps && at < count; ++x, ++at) {
        offsets_[at] = of_line + place_offset(x);
      }
      x = 0;
      std::int64_t& inner = of_.rows_first ? c : y;
      std::int64_t& outer = of_.rows_first ? y : c;
      if (++inner == (of_.rows_first ? of_.channels : of_.y.taps)) {
        inner = 0;
        ++outer;
      }
    }
  }

  /// Packs all other panels, one after the other, for the depth that was begun.
  void pack_panels(float* to) {
    const std::int64_t lines = reads_lines_ ? 0 : panels_of_lines();
    pack_lines(lines, to);
    for (std::int64_t panel = lines; panel * kTileCols < columns_; ++panel) {
      if (!is_scattered(panel)) {
        for (std::int64_t v = 0; v < kTileVecs; ++v) {
          write_vector(panel * kTileVecs + v, to + panel * kTileCols * count_ + v * kLanes, kTileCols);
        }
      }
    }
    packed_ = to;
  }
  /// A panel after pack_panels(), from `first` of the depth on, without starts.
  ScatteredRight panel(std::int64_t panel, std::int64_t first) const {
    if (is_scattered(panel)) {
      return {{from(panel * kTileVecs), from(panel * kTileVecs + 1)}, offsets_ + first, nullptr};
    }
    const float* const packed = packed_ + panel * kTileCols * count_;
    return {{packed, packed + kLanes}, kPackedOffsets.data() + first, nullptr};
  }
  /// The part [first, second) of the depth that was begun which reads anything of an image for a panel.
  std::pair<std::int64_t, std::int64_t> reach(std::int64_t panel) const {
    const std::int64_t begin = begin_ + panel * kTileCols;
    const std::int64_t last = min(begin + kTileCols, begin_ + columns_) - 1;
    if (!of_.rows_first || begin / of_.positions() != last / of_.positions()) {
      return {0, count_};
    }
    const auto reads = [&](std::int64_t tap) {
      const std::int64_t low = of_.y.at(begin % of_.positions() / of_.x.positions, tap);
      const std::int64_t high = of_.y.at(last % of_.positions() / of_.x.positions, tap);
      return low < of_.y.size && high >= 0;
    };
    std::int64_t first = 0;
    std::int64_t end = of_.y.taps;
    while (first < end && !reads(first)) {
      ++first;
    }
    while (first < end && !reads(end - 1)) {
      --end;
    }
    const auto in_block = [&](std::int64_t tap) {
      const std::int64_t at = tap * of_.channels * of_.x.taps - begun_;
      return at < 0 ? 0 : min(at, count_);
    };
    return {in_block(first), in_block(end)};
  }
  /// The columns as runs, of which there are at most kPatchColumns.
  std::int64_t runs(PatchRun* to) const {
    std::int64_t count = 0;
    for (std::int64_t vector = 0; vector * kLanes < columns_; ++vector) {
      for (std::int64_t i = starts_[vector]; i < starts_[vector + 1]; ++i) {
        const Segment& segment = segments_[i];
        const std::int64_t begin = vector * kLanes + segment.from;
        const std::int64_t base = segment.base + segment.from;
        if (count > 0 && to[count - 1].base + begin - to[count - 1].begin == base) {
          to[count - 1].end += segment.to - segment.from;
        } else {
          to[count++] = {base, begin, begin + segment.to - segment.from};
        }
      }
    }
    return count;
  }
  /// Where a line of the depth that was begun lies, from which bases count.
  const float* line(std::int64_t k) const { return data_ + offsets_[k]; }
  /// Packs the depth as rows of a left side, kLeftStride apart.
  void pack_rows(float* to) const {
    for (std::int64_t vector = 0; vector * kLanes < columns_; ++vector) {
      write_vector(vector, to + vector * kLanes, kLeftStride);
    }
  }

 private:
  // Columns that lie side by side, in the lanes [from, to) of a vector. `base` is that of lane 0.
  struct Segment {
    std::int64_t base;
    std::int64_t from, to;
  };
  // Whether a panel of kTileCols columns can be read in place: its vectors are lines of an image or of the slab.
  bool is_scattered(std::int64_t panel) const { return reads_lines_ && has_lines(panel); }
  // Whether both vectors of a panel are lines.
  bool has_lines(std::int64_t panel) const {
    const std::int64_t first = panel * kTileVecs;
    return (first + kTileVecs) * kLanes <= columns_ && is_line(first) && is_line(first + 1);
  }

  // The first panels, all of whose vectors are lines.
  std::int64_t panels_of_lines() const {
    std::int64_t panel = 0;
    while (has_lines(panel)) {
      ++panel;
    }
    return panel;
  }
  // Packs so many panels along the lines of images, which are far from each other: in this order the processor fetches
  // ahead.
  void pack_lines(std::int64_t panels, float* to) const {
    for (std::int64_t k = 0; k < count_; ++k, to += kTileCols) {
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        for (std::int64_t v = 0; v < kTileVecs; ++v) {
          store(to + panel * kTileCols * count_ + v * kLanes, load(from(panel * kTileVecs + v) + offsets_[k]));
        }
      }
    }
  }

  static constexpr std::int64_t kLine = 16;  // floats of a cache line

  bool is_line(std::int64_t vector) const {
    const Segment& first = segments_[starts_[vector]];
    return first.from == 0 && first.to == kLanes;
  }
  const float* from(std::int64_t vector) const { return data_ + segments_[starts_[vector]].base; }

  void add_segments(std::int64_t begin, std::int64_t end) {
    const std::int64_t wide = of_.x.positions;
    const std::int64_t positions = of_.positions();
    std::int64_t column = begin;
    std::int64_t image = -1;
    std::int64_t band = 0;     // the first row of the slab that belongs to the image
    std::int64_t first_y = 0;  // its first row of positions
    std::int64_t count = 0;
    starts_[0] = 0;
    while (column < end) {
      const std::int64_t position = column % positions;
      const std::int64_t y = position / wide;
      const std::int64_t x = position % wide;
      if (column / positions != image) {
        image = column / positions;
        first_y = y;
        band = slab_rows_;
        const std::int64_t rest = min(end - column, positions - position);
        const std::int64_t rows = (position + rest - 1) / wide - y + 1;
        bands_[num_bands_++] = {image, y, band};
        slab_rows_ += (rows - 1) * of_.y.step + of_.y.high() - of_.y.low() + 1;
      }
      std::int64_t base = in_place_ ? image * of_.image_stride + y * of_.y.step * of_.x.size + x
                                    : (band + (y - first_y) * of_.y.step) * pitch_ + x - first_x_;
      for (std::int64_t rest = min(wide - x, end - column); rest > 0;) {
        const std::int64_t lane = (column - begin) % kLanes;
        const std::int64_t here = min(kLanes - lane, rest);
        Segment* last = lane > 0 ? &segments_[count - 1] : nullptr;
        if (last != nullptr && last->base == base - lane) {
          last->to += here;
        } else {
          segments_[count++] = {base - lane, lane, lane + here};
        }
        column += here;
        base += here;
        rest -= here;
        starts_[up(column - begin, kLanes)] = static_cast<std::int16_t>(count);
      }
    }
    bands_[num_bands_] = {0, 0, slab_rows_};
  }

  // Where a row of the window, and a place in it, read from where position 0 of the block's first row begins.
  std::int64_t line_offset(std::int64_t y) const {
    return in_place_ ? of_.y.at(0, y) * of_.x.size : (of_.y.at(0, y) - of_.y.low()) * pitch_;
  }
  std::int64_t place_offset(std::int64_t x) const {
    if (in_place_) {
      return of_.x.at(0, x);
    }
    const std::int64_t along = of_.x.at(0, x) - of_.x.low();
    return of_.x.step == 1 ? along : along % of_.x.step * part_ + along / of_.x.step;
  }

  // Whether a tap reads that line of the slab's part for an image.
  bool is_read(std::int64_t line) const {
    for (std::int64_t tap = 0; tap < of_.y.taps; ++tap) {
      if ((line - (of_.y.at(0, tap) - of_.y.low())) % of_.y.step == 0) {
        return true;
      }
    }
    return false;
  }

  // A line holds the elements that are one step apart side by side, for each of the step's remainders.
  void fill_line(const float* from, float* to) const {
    const std::int64_t step = of_.x.step;
    for (std::int64_t part = 0; part < step; ++part, to += part_) {
      const std::int64_t x = of_.x.low() + first_x_ * step + part;  // of element 0
      const std::int64_t first = x >= 0 ? 0 : min(up(-x, step), part_);
      const std::int64_t end = x >= of_.x.size ? first : min(up(of_.x.size - x, step), part_);
      if (step == 1) {
        // A vector may stand over; what it writes there is written later.
        for (std::int64_t i = 0; i < part_; i += kLanes) {
          const bool whole = i >= first && i + kLanes <= end;
          store(to + i, whole ? load(from + x + i) : load(from + x + i, between(first - i, end - i)));
        }
        continue;
      }
      if (step == 2) {
        for (std::int64_t i = 0; i < part_; i += kLanes) {
          const std::int64_t low = x + 2 * i;
          const std::int64_t high = low + kLanes;
          const bool whole = low >= 0 && high + kLanes <= of_.x.size;
          const auto elements = [&](std::int64_t at) __attribute__((always_inline)) {
            return bits_of(whole ? load(from + at) : load(from + at, between(-at, of_.x.size - at)));
          };
          store(to + i, from_bits(every_second_lane<0>(elements(low), elements(high))));
        }
        continue;
      }
      for (std::int64_t i = 0; i < part_; ++i) {
        to[i] = i >= first && i < end ? from[x + i * step] : 0;
      }
    }
  }

  void fill_slab(const float* data, std::int64_t channels, float* slab) const {
    for (std::int64_t c = 0; c < channels; ++c, data += of_.y.size * of_.x.size, slab += slab_stride_) {
      for (std::int64_t band = 0; band < num_bands_; ++band) {
        const float* image = data + bands_[band].image * of_.image_stride;
        const std::int64_t low = of_.y.low() + bands_[band].y * of_.y.step;
        for (std::int64_t row = bands_[band].row; row < bands_[band + 1].row; ++row) {
          const std::int64_t line = row - bands_[band].row;
          const std::int64_t y = low + line;
          float* const to = slab + row * pitch_;
          if (y < 0 || y >= of_.y.size) {
            for (std::int64_t i = 0; i < pitch_; i += kLanes) {
              store(to + i, broadcast(0));
            }
          } else if (is_read(line)) {
            fill_line(image + y * of_.x.size, to);
          }
        }
      }
    }
  }

  // Writes the lines of a vector of columns, `stride` apart, one for each depth: zeros behind the last column.
  void write_vector(std::int64_t vector, float* to, std::int64_t stride) const {
    if (vector * kLanes >= columns_) {
      for (std::int64_t k = 0; k < count_; ++k, to += stride) {
        store(to, broadcast(0));
      }
      return;
    }
    const Segment* const segments = segments_ + starts_[vector];
    const std::int64_t count = starts_[vector + 1] - starts_[vector];
    const float* const first = from(vector);
    if (is_line(vector)) {
      for (std::int64_t k = 0; k < count_; ++k, to += stride) {
        store(to, load(first + offsets_[k]));
      }
      return;
    }
    const Mask mask = between(segments[0].from, segments[0].to);
    if (count == 2) {
      const float* const second = data_ + segments[1].base;
      const Mask rest = between(segments[1].from, segments[1].to);
      for (std::int64_t k = 0; k < count_; ++k, to += stride) {
        store(to, either(load(first + offsets_[k], mask), load(second + offsets_[k], rest)));
      }
      return;
    }
    for (std::int64_t k = 0; k < count_; ++k, to += stride) {
      Vec v = load(first + offsets_[k], mask);
      for (std::int64_t i = 1; i < count; ++i) {
        v = either(v, load(data_ + segments[i].base + offsets_[k], between(segments[i].from, segments[i].to)));
      }
      store(to, v);
    }
  }

  struct Band {
    std::int64_t image, y, row;
  };

  const Patches& of_;
  std::int64_t begin_, columns_;
  bool is_one_row_;
  bool in_place_;
  std::int64_t first_x_;  // the position along x of the slab's first element
  std::int64_t part_;     // elements of a line that are one step apart
  std::int64_t pitch_;
  std::int64_t slab_rows_ = 0;
  std::int64_t slab_stride_;  // between channels
  bool reads_lines_;          // lines that are read side by side stay close
  std::int64_t num_bands_ = 0;
  std::int64_t begun_ = -1;
  std::int64_t count_ = 0;
  const float* data_ = nullptr;
  const float* packed_ = nullptr;
  std::int64_t offsets_[kDepth];
  Segment segments_[kPatchColumns];
  std::int16_t starts_[kPatchColumns / kLanes + 1];
  Band bands_[kPatchColumns + 1];
};

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
