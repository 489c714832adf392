#pragma once

#include <array>
#include <cmath>

#include <tandem/kernels/batch_norm.h>
#include <tandem/kernels/cpu/norm_sums.h>
#include <tandem/kernels/cpu/per_isa.h>

// A tile is walked in one of two ways. With few elements per channel and row (one, in [N, C]), a row of the tile is a
// row of columns, each with its own coefficient. With many, each channel of a row is a dense row of its own.

namespace tandem::inline v0::kernels::cpu {

TANDEM_FOR_EACH_ISA(void tile_moments_f32(const float* in, const Tiles& tiles, const NormTile& tile, Moments* out);
                    void normalise_tile_f32(const BatchNorm& kernel, const Tiles& tiles, const NormTile& tile);
                    void tile_sums_f32(const BatchNormGrad& kernel, const Tiles& tiles, const NormTile& tile,
                                       NormSums* out);
                    void input_gradient_tile_f32(const BatchNormGrad& kernel, const Tiles& tiles, const NormSums* means,
                                                 const NormTile& tile);)

// Each source that includes this header has functions of its own: those of f32 are compiled once per instruction set.
namespace {

// Position of a tile's rows in memory.
struct Rows {
  std::int64_t first, stride, columns;
  Rows(const Tiles& tiles, const NormTile& tile)
      : first((tile.row * tiles.channels + tile.channel) * tiles.inner),
        stride(tiles.channels * tiles.inner),
        columns(tile.channels * tiles.inner) {}
};

// Writes the moments of each column, computed like moments_of() of a row.
template <class T>
void column_moments(const T* x, std::int64_t rows, const Rows& at, Moments (&moments)[kTileColumns]) {
  using C = ComputeType<T>;
  std::fill_n(moments, at.columns, Moments{});
  const auto row_of = [=](std::int64_t row) { return ColumnRow<T>(x + row * at.stride, at.columns); };
  for (std::int64_t block = 0; block < rows; block += kSumRows) {
    const std::int64_t end = std::min(block + kSumRows, rows);
    const auto count = static_cast<double>(end - block);
    const ColumnRow<T> first = row_of(block);
    C near[1][kTileColumns] = {};
    cpu::add_rows(block, end, at.columns, near, [&](std::int64_t row) {
      return [&first, in = row_of(row)](std::int64_t c) { return std::array<C, 1>{in[c] - first[c]}; };
    });
    for (std::int64_t c = 0; c < at.columns; ++c) {
      near[0][c] = first[c] + near[0][c] / static_cast<C>(count);
    }
    C sums[2][kTileColumns] = {};
    cpu::add_rows(block, end, at.columns, sums, [=, means = &near[0][0]](std::int64_t row) {
      return [means, in = row_of(row)](std::int64_t c) {
        const C distance = in[c] - means[c];
        return std::array<C, 2>{distance, distance * distance};
      };
    });
    const double share = count / (static_cast<double>(block) + count);
    for (std::int64_t c = 0; c < at.columns; ++c) {
      const auto apart = static_cast<double>(sums[0][c]);
      moments[c].add({count, static_cast<double>(near[0][c]) + apart / count,
                      std::max(static_cast<double>(sums[1][c]) - apart * apart / count, 0.0)},
                     share);
    }
  }
}

// Writes the moments of the tile's channels to out[0 ... tile.channels).
template <class T>
void tile_moments(const T* in, const Tiles& tiles, const NormTile& tile, Moments* out) {
  const Rows at(tiles, tile);
  in += at.first;
  std::fill_n(out, tile.channels, Moments{});
  if (tiles.narrow()) {
    Moments of_columns[kTileColumns];
    column_moments(in, tile.rows, at, of_columns);
    for (std::int64_t i = 0; i < tiles.inner; ++i) {
      const double share = 1 / (static_cast<double>(i) + 1);
      for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
        out[channel].add(of_columns[channel * tiles.inner + i], share);
      }
    }
    return;
  }
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
      out[channel].add(cpu::moments_of(in + row * at.stride + channel * tiles.inner, tiles.inner));
    }
  }
}

// Calls body(channel, index of its first element, number of elements) for each dense row of a wide tile.
template <class Body>
void for_each_dense_row(const Tiles& tiles, const NormTile& tile, Body&& body) {
  const Rows at(tiles, tile);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
      body(channel, at.first + row * at.stride + channel * tiles.inner, tiles.inner);
    }
  }
}

// Holds of_channel(channel) for each column of a narrow tile, or for each channel of a wide one.
template <class C>
struct Coefficients {
  static_assert(kTileRow * 8 / kTileColumns <= kTileColumns);  // channels of a wide tile
  C values[kTileColumns];

  template <class OfChannel>
  Coefficients(const Tiles& tiles, const NormTile& tile, OfChannel&& of_channel) {
    const std::int64_t repeats = tiles.narrow() ? tiles.inner : 1;
    for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
      std::fill_n(values + channel * repeats, repeats, static_cast<C>(of_channel(tile.channel + channel)));
    }
  }
  C operator[](std::int64_t i) const noexcept { return values[i]; }
};

// Sets out[i] = formula(i, in[i]...) for i in [0, count), in the type's arithmetic.
template <class T, class Formula, class... In>
[[gnu::always_inline]] inline void write_row(T* out, std::int64_t count, Formula&& formula, const In*... in) {
  using C = ComputeType<T>;
  if (std::is_same_v<C, T> || count < kShortRow<T>) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = T(formula(i, C(in[i])...));
    }
    return;
  }
  if constexpr (!std::is_same_v<C, T>) {
    for (std::int64_t begin = 0; begin < count; begin += kSumBlock) {
      const std::int64_t length = std::min(kSumBlock, count - begin);
      const auto write = [&](const auto&... pieces) {
        C results[kSumBlock];
        for (std::int64_t i = 0; i < length; ++i) {
          results[i] = formula(begin + i, pieces[i]...);
        }
        narrow(out + begin, results, length);
      };
      write(RowPiece<In>(in + begin, length)...);
    }
  }
}

// Sets out[i] = formula(k, in[i]...) for each element of a tile, where k is its column or channel in the tile.
template <class T, class Formula, class... In>
void for_each_element(const Tiles& tiles, const NormTile& tile, T* out, Formula&& formula, const In*... in) {
  if (tiles.narrow()) {
    const Rows at(tiles, tile);
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const std::int64_t begin = at.first + row * at.stride;
      write_row(out + begin, at.columns, formula, (in + begin)...);
    }
    return;
  }
  for_each_dense_row(tiles, tile, [&](std::int64_t channel, std::int64_t begin, std::int64_t count) {
    const auto in_channel = [&](std::int64_t, auto... values) { return formula(channel, values...); };
    write_row(out + begin, count, in_channel, (in + begin)...);
  });
}

// Normalises one tile.
template <class T>
void normalise_tile(const BatchNorm& kernel, const Tiles& tiles, const NormTile& tile) {
  using C = ComputeType<T>;
  const T* in = static_cast<const T*>(kernel.in);
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  const auto weight_of = [&](std::int64_t channel) { return weight == nullptr ? C(1) : C(weight[channel]); };
  const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].mean; });
  const Coefficients<C> scale(
      tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].rstd * weight_of(channel); });
  const Coefficients<C> shift(tiles, tile, [&](std::int64_t channel) {
    const Normaliser<C> x(kernel.statistics[channel]);
    return x.shift * weight_of(channel) + (bias == nullptr ? C(0) : C(bias[channel]));
  });
  for_each_element(
      tiles, tile, static_cast<T*>(kernel.out),
      [&](std::int64_t k, C value) { return (value - mean[k]) * scale[k] + shift[k]; }, in);
}

// Writes the sums of the tile's channels to out[0 ... tile.channels). If `in` is null, the products are not needed and
// hold no meaning.
template <class T>
void tile_sums(const BatchNormGrad& kernel, const Tiles& tiles, const NormTile& tile, NormSums* out) {
  using C = ComputeType<T>;
  const T* grad = static_cast<const T*>(kernel.grad);
  const T* in = static_cast<const T*>(kernel.in == nullptr ? kernel.grad : kernel.in);
  const auto normaliser_of = [&](std::int64_t channel) { return Normaliser<C>(kernel.statistics[channel]); };
  std::fill_n(out, tile.channels, NormSums{});
  if (tiles.narrow()) {
    const Rows at(tiles, tile);
    const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).mean; });
    const Coefficients<C> rstd(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).rstd; });
    const Coefficients<C> shift(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).shift; });
    double sums[2][kTileColumns] = {};
    cpu::column_sums<C, 2>(tile.rows, at.columns, sums, [&](std::int64_t row) {
      const std::int64_t begin = at.first + row * at.stride;
      return [&, g = ColumnRow<T>(grad + begin, at.columns), x = ColumnRow<T>(in + begin, at.columns)](std::int64_t c) {
        return std::array<C, 2>{g[c], g[c] * ((x[c] - mean[c]) * rstd[c] + shift[c])};
      };
    });
    for (std::int64_t i = 0; i < tiles.inner; ++i) {
      for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
        const std::int64_t c = channel * tiles.inner + i;
        out[channel].add({sums[0][c], sums[1][c]});
      }
    }
    return;
  }
  for_each_dense_row(tiles, tile, [&](std::int64_t channel, std::int64_t begin, std::int64_t count) {
    const Normaliser<C> n = normaliser_of(tile.channel + channel);
    const auto [sum, product] = cpu::sums_of<C, 2>(
        count, [=](auto g, auto x) { return std::array{g, g * ((x - n.mean) * n.rstd + n.shift)}; }, grad + begin,
        in + begin);
    out[channel].add({sum, product});
  });
}

// Writes the gradient of one tile's input. `means` are the sums, divided by their number of values.
template <class T>
void input_gradient_tile(const BatchNormGrad& kernel, const Tiles& tiles, const NormSums* means, const NormTile& tile) {
  using C = ComputeType<T>;
  const T* grad = static_cast<const T*>(kernel.grad);
  const T* in = static_cast<const T*>(kernel.in);
  const T* weight = static_cast<const T*>(kernel.weight);
  T* out = static_cast<T*>(kernel.in_grad);
  const auto write = [&](auto&& value, auto... of) {
    if (kernel.accumulate_in == Accumulate::yes) {
      const auto add = [&](std::int64_t k, C old, auto... values) { return old + value(k, values...); };
      for_each_element(tiles, tile, out, add, out, of...);
    } else {
      for_each_element(tiles, tile, out, value, of...);
    }
  };
  const Coefficients<C> scale(tiles, tile, [&](std::int64_t channel) {
    return kernel.statistics[channel].rstd * (weight == nullptr ? 1.0 : static_cast<double>(weight[channel]));
  });
  if (!kernel.training) {
    return write([&](std::int64_t k, C g) { return g * scale[k]; }, grad);
  }
  // mean(grad) + x * mean(grad * x) = offset + (in - mean) * slope
  const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].mean; });
  const Coefficients<C> slope(
      tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].rstd * means[channel].product; });
  const Coefficients<C> offset(tiles, tile, [&](std::int64_t channel) {
    const Normaliser<C> x(kernel.statistics[channel]);
    return means[channel].grad + static_cast<double>(x.shift) * means[channel].product;
  });
  write([&](std::int64_t k, C g, C x) { return (g - offset[k] - (x - mean[k]) * slope[k]) * scale[k]; }, grad, in);
}

}  // namespace

}  // namespace tandem::inline v0::kernels::cpu
