#include <tandem/kernels/batch_norm.h>

#include <array>
#include <cmath>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/norm_sums.h>
#include <tandem/kernels/scratch.h>

// A tile is walked in one of two ways. With few elements per channel and row (one, in [N, C]), a row of the tile is a
// row of columns, each with its own coefficient. With many, each channel of a row is a dense row of its own.

namespace tandem::inline v0::kernels {

namespace {

using cpu::kSumRows;
using cpu::kTileColumns;
using cpu::Moments;
using cpu::Normaliser;
using cpu::Tile;
using cpu::Tiles;

// Position of a tile's rows in memory.
struct Rows {
  std::int64_t first, stride, columns;
  Rows(const Tiles& tiles, const Tile& tile)
      : first((tile.row * tiles.channels + tile.channel) * tiles.inner),
        stride(tiles.channels * tiles.inner),
        columns(tile.channels * tiles.inner) {}
};

// Adds the moments of each column, computed like moments_of() of a row.
template <class T>
void column_moments(const T* x, std::int64_t rows, const Rows& at, Moments (&moments)[kTileColumns]) {
  using C = ComputeType<T>;
  for (std::int64_t block = 0; block < rows; block += kSumRows) {
    const std::int64_t end = std::min(block + kSumRows, rows);
    const auto count = static_cast<double>(end - block);
    const T* first = x + block * at.stride;
    C near[kTileColumns] = {};
    C rest[kTileColumns] = {};
    C squares[kTileColumns] = {};
    for (std::int64_t row = block; row < end; ++row) {
      const T* in = x + row * at.stride;
      for (std::int64_t c = 0; c < at.columns; ++c) {
        near[c] += in[c] - first[c];
      }
    }
    for (std::int64_t c = 0; c < at.columns; ++c) {
      near[c] = first[c] + near[c] / static_cast<C>(count);
    }
    for (std::int64_t row = block; row < end; ++row) {
      const T* in = x + row * at.stride;
      for (std::int64_t c = 0; c < at.columns; ++c) {
        const C distance = in[c] - near[c];
        rest[c] += distance;
        squares[c] += distance * distance;
      }
    }
    for (std::int64_t c = 0; c < at.columns; ++c) {
      const auto apart = static_cast<double>(rest[c]);
      moments[c].add({count, static_cast<double>(near[c]) + apart / count,
                      std::max(static_cast<double>(squares[c]) - apart * apart / count, 0.0)});
    }
  }
}

// Writes the moments of the tile's channels to out[0 ... tile.channels).
template <class T>
void tile_moments(const T* in, const Tiles& tiles, const Tile& tile, Moments* out) {
  const Rows at(tiles, tile);
  in += at.first;
  std::fill_n(out, tile.channels, Moments{});
  if (tiles.narrow()) {
    Moments of_columns[kTileColumns] = {};
    column_moments(in, tile.rows, at, of_columns);
    for (std::int64_t c = 0; c < at.columns; ++c) {
      out[c / tiles.inner].add(of_columns[c]);
    }
    return;
  }
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t channel = 0; channel < tile.channels; ++channel) {
      out[channel].add(cpu::moments_of(in + row * at.stride + channel * tiles.inner, tiles.inner));
    }
  }
}

// Computes the statistics of the values and updates the running ones.
template <class T>
void batch_statistics(Context& context, const BatchNorm& kernel, const Tiles& tiles) {
  using C = ComputeType<T>;
  const ScratchScope scope(context.scratch);
  auto* partial = context.scratch.allocate_array<Moments>(static_cast<std::size_t>(tiles.down * tiles.channels));
  cpu::for_each_tile(tiles, [&](const Tile& tile) {
    tile_moments(static_cast<const T*>(kernel.in), tiles, tile, partial + tile.part * tiles.channels + tile.channel);
  });
  const auto update = [&](void* running, std::int64_t channel, double value) {
    T& old = static_cast<T*>(running)[channel];
    old = T(static_cast<C>((1 - kernel.momentum) * static_cast<double>(old) + kernel.momentum * value));
  };
  for (std::int64_t channel = 0; channel < tiles.channels; ++channel) {
    Moments all;
    for (std::int64_t part = 0; part < tiles.down; ++part) {
      all.add(partial[part * tiles.channels + channel]);
    }
    kernel.statistics[channel] = all.statistics(kernel.eps);
    if (kernel.running_mean != nullptr && all.count > 0) {
      update(kernel.running_mean, channel, all.mean);
      update(kernel.running_var, channel, all.squares / (all.count - 1));
    }
  }
}

template <class T>
void running_statistics(const BatchNorm& kernel) {
  for (std::int64_t channel = 0; channel < kernel.channels; ++channel) {
    const auto mean = static_cast<double>(static_cast<const T*>(kernel.running_mean)[channel]);
    const auto variance = static_cast<double>(static_cast<const T*>(kernel.running_var)[channel]);
    kernel.statistics[channel] = {mean, 1 / std::sqrt(variance + kernel.eps)};
  }
}

// Calls body(channel, index of its first element, number of elements) for each dense row of a wide tile.
template <class Body>
void for_each_dense_row(const Tiles& tiles, const Tile& tile, Body&& body) {
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
  C values[kTileColumns];

  template <class OfChannel>
  Coefficients(const Tiles& tiles, const Tile& tile, OfChannel&& of_channel) {
    const std::int64_t repeats = tiles.narrow() ? tiles.inner : 1;
    for (std::int64_t c = 0; c < tile.channels * repeats; ++c) {
      values[c] = static_cast<C>(of_channel(tile.channel + c / repeats));
    }
  }
  C operator[](std::int64_t i) const noexcept { return values[i]; }
};

// Sets out[i] = formula(i, k) for each element, where k is its column or channel in the tile.
template <class T, class Formula>
void for_each_element(const Tiles& tiles, const Tile& tile, T* out, Formula&& formula) {
  if (tiles.narrow()) {
    const Rows at(tiles, tile);
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const std::int64_t begin = at.first + row * at.stride;
      for (std::int64_t c = 0; c < at.columns; ++c) {
        out[begin + c] = T(formula(begin + c, c));
      }
    }
    return;
  }
  for_each_dense_row(tiles, tile, [&](std::int64_t channel, std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = begin; i < begin + count; ++i) {
      out[i] = T(formula(i, channel));
    }
  });
}

template <class T>
void normalise(const BatchNorm& kernel, const Tiles& tiles) {
  using C = ComputeType<T>;
  const T* in = static_cast<const T*>(kernel.in);
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  cpu::for_each_tile(tiles, [&](const Tile& tile) {
    const auto weight_of = [&](std::int64_t channel) { return weight == nullptr ? C(1) : C(weight[channel]); };
    const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].mean; });
    const Coefficients<C> scale(
        tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].rstd * weight_of(channel); });
    const Coefficients<C> shift(tiles, tile, [&](std::int64_t channel) {
      const Normaliser<C> x(kernel.statistics[channel]);
      return x.shift * weight_of(channel) + (bias == nullptr ? C(0) : C(bias[channel]));
    });
    for_each_element(tiles, tile, static_cast<T*>(kernel.out),
                     [&](std::int64_t i, std::int64_t k) { return (in[i] - mean[k]) * scale[k] + shift[k]; });
  });
}

// Sums over one channel.
struct Sums {
  double grad = 0;
  double product = 0;  // sum of gradient * normalised input

  void add(double g, double p) noexcept {
    grad += g;
    product += p;
  }
};

// Writes the sums of the tile's channels to out[0 ... tile.channels). If `in` is null, the products are not needed and
// hold no meaning.
template <class T>
void tile_sums(const BatchNormGrad& kernel, const Tiles& tiles, const Tile& tile, Sums* out) {
  using C = ComputeType<T>;
  const T* grad = static_cast<const T*>(kernel.grad);
  const T* in = static_cast<const T*>(kernel.in == nullptr ? kernel.grad : kernel.in);
  const auto normaliser_of = [&](std::int64_t channel) { return Normaliser<C>(kernel.statistics[channel]); };
  std::fill_n(out, tile.channels, Sums{});
  if (tiles.narrow()) {
    const Rows at(tiles, tile);
    const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).mean; });
    const Coefficients<C> rstd(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).rstd; });
    const Coefficients<C> shift(tiles, tile, [&](std::int64_t channel) { return normaliser_of(channel).shift; });
    double sums[2][kTileColumns] = {};
    cpu::column_sums<C, 2>(tile.rows, at.columns, sums, [&](std::int64_t row) {
      return [&, g = grad + at.first + row * at.stride, x = in + at.first + row * at.stride](std::int64_t c) {
        return std::array<C, 2>{g[c], g[c] * ((x[c] - mean[c]) * rstd[c] + shift[c])};
      };
    });
    for (std::int64_t c = 0; c < at.columns; ++c) {
      out[c / tiles.inner].add(sums[0][c], sums[1][c]);
    }
    return;
  }
  for_each_dense_row(tiles, tile, [&](std::int64_t channel, std::int64_t begin, std::int64_t count) {
    const Normaliser<C> n = normaliser_of(tile.channel + channel);
    const auto [sum, product] = cpu::sums_of<C, 2>(count, [=, g = grad + begin, x = in + begin](std::int64_t i) {
      return std::array<C, 2>{g[i], g[i] * ((x[i] - n.mean) * n.rstd + n.shift)};
    });
    out[channel].add(sum, product);
  });
}

template <class T>
void input_gradient(const BatchNormGrad& kernel, const Tiles& tiles, const Sums* sums) {
  using C = ComputeType<T>;
  const T* grad = static_cast<const T*>(kernel.grad);
  const T* in = static_cast<const T*>(kernel.in);
  const T* weight = static_cast<const T*>(kernel.weight);
  T* out = static_cast<T*>(kernel.in_grad);
  const C keep = kernel.accumulate_in == Accumulate::yes ? C(1) : C(0);
  const auto count = static_cast<double>(tiles.outer * tiles.inner);
  cpu::for_each_tile(tiles, [&](const Tile& tile) {
    const auto write = [&](auto&& value) {
      if (keep != 0) {
        for_each_element(tiles, tile, out, [&](std::int64_t i, std::int64_t k) { return out[i] + value(i, k); });
      } else {
        for_each_element(tiles, tile, out, value);
      }
    };
    const Coefficients<C> scale(tiles, tile, [&](std::int64_t channel) {
      return kernel.statistics[channel].rstd * (weight == nullptr ? 1.0 : static_cast<double>(weight[channel]));
    });
    if (!kernel.training) {
      return write([&](std::int64_t i, std::int64_t k) { return grad[i] * scale[k]; });
    }
    // mean(grad) + x * mean(grad * x) = offset + (in - mean) * slope
    const Coefficients<C> mean(tiles, tile, [&](std::int64_t channel) { return kernel.statistics[channel].mean; });
    const Coefficients<C> slope(tiles, tile, [&](std::int64_t channel) {
      return kernel.statistics[channel].rstd * sums[channel].product / count;
    });
    const Coefficients<C> offset(tiles, tile, [&](std::int64_t channel) {
      const Normaliser<C> x(kernel.statistics[channel]);
      return (sums[channel].grad + static_cast<double>(x.shift) * sums[channel].product) / count;
    });
    write([&](std::int64_t i, std::int64_t k) {
      return (grad[i] - offset[k] - (in[i] - mean[k]) * slope[k]) * scale[k];
    });
  });
}

template <class T>
void gradients(Context& context, const BatchNormGrad& kernel) {
  const Tiles tiles{kernel.outer, kernel.channels, kernel.inner};
  const ScratchScope scope(context.scratch);
  Sums* sums = nullptr;
  if (kernel.weight_grad != nullptr || kernel.bias_grad != nullptr || kernel.training) {
    sums = context.scratch.allocate_array<Sums>(static_cast<std::size_t>((tiles.down + 1) * tiles.channels));
    Sums* partial = sums + tiles.channels;
    cpu::for_each_tile(tiles, [&](const Tile& tile) {
      tile_sums<T>(kernel, tiles, tile, partial + tile.part * tiles.channels + tile.channel);
    });
    for (std::int64_t channel = 0; channel < tiles.channels; ++channel) {
      sums[channel] = {};
      for (std::int64_t part = 0; part < tiles.down; ++part) {
        const Sums& some = partial[part * tiles.channels + channel];
        sums[channel].add(some.grad, some.product);
      }
    }
  }
  if (kernel.in_grad != nullptr) {
    input_gradient<T>(kernel, tiles, sums);
  }
  for (std::int64_t channel = 0; channel < tiles.channels; ++channel) {
    if (kernel.weight_grad != nullptr) {
      cpu::store_gradient<T>(kernel.weight_grad, channel, sums[channel].product, kernel.accumulate_weight);
    }
    if (kernel.bias_grad != nullptr) {
      cpu::store_gradient<T>(kernel.bias_grad, channel, sums[channel].grad, kernel.accumulate_bias);
    }
  }
}

}  // namespace

void run(OnCpu, Context& context, const BatchNorm& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNorm::kName, [&]<class T>() {
    const Tiles tiles{kernel.outer, kernel.channels, kernel.inner};
    if (kernel.training) {
      batch_statistics<T>(context, kernel, tiles);
    } else {
      running_statistics<T>(kernel);
    }
    normalise<T>(kernel, tiles);
  });
}

void run(OnCpu, Context& context, const BatchNormGrad& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNorm::kName, [&]<class T>() { gradients<T>(context, kernel); });
}

}  // namespace tandem::inline v0::kernels
