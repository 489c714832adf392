#pragma once

#include <array>

#include <tandem/kernels/cpu/norm_sums.h>
#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/layer_norm.h>

// Rows of a layer norm, and the sums of its affine gradients over a tile, on one thread.

namespace tandem::inline v0::kernels::cpu {

TANDEM_FOR_EACH_ISA(void normalise_row_f32(const LayerNorm& kernel, std::int64_t row);
                    void row_gradient_f32(const LayerNormGrad& kernel, std::int64_t row);
                    void affine_sums_f32(const LayerNormGrad& kernel, const NormTile& tile,
                                         double (&sums)[2][kTileColumns]);)

// Each source that includes this header has functions of its own: those of f32 are compiled once per instruction set.
namespace {

template <class T>
void normalise_row(const LayerNorm& kernel, const T* in, T* out, NormStatistics& statistics) {
  using C = ComputeType<T>;
  statistics = moments_of(in, kernel.size).statistics(kernel.eps);
  const Normaliser<C> x(statistics);
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  if (weight == nullptr && bias == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T((in[i] - x.mean) * x.rstd + x.shift);
    }
  } else if (bias == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) * weight[i]);
    }
  } else if (weight == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) + bias[i]);
    }
  } else {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) * weight[i] + bias[i]);
    }
  }
}

// The gradient of the normalised input is the product of the factors.
template <class T, class... Factors>
void row_gradient(const LayerNormGrad& kernel, const T* in, T* out, const NormStatistics& statistics,
                  const Factors*... factors) {
  using C = ComputeType<T>;
  const Normaliser<C> x(statistics);
  const auto [sum, product] = sums_of<C, 2>(
      kernel.size,
      [=](auto value, auto... of) {
        const auto h = (of * ...);
        return std::array{h, h * ((value - x.mean) * x.rstd + x.shift)};
      },
      in, factors...);
  const auto grad_at = [=](std::int64_t i) { return (C(factors[i]) * ...); };
  const double count = static_cast<double>(kernel.size);
  const C slope = static_cast<C>(product / count) * x.rstd;
  const C mean = static_cast<C>(sum / count + static_cast<double>(x.shift) * product / count);
  if (kernel.accumulate_in == Accumulate::yes) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(out[i] + (grad_at(i) - mean - (in[i] - x.mean) * slope) * x.rstd);
    }
  } else {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T((grad_at(i) - mean - (in[i] - x.mean) * slope) * x.rstd);
    }
  }
}

template <class T>
void normalise_row(const LayerNorm& kernel, std::int64_t row) {
  normalise_row(kernel, static_cast<const T*>(kernel.in) + row * kernel.size,
                static_cast<T*>(kernel.out) + row * kernel.size, kernel.statistics[row]);
}

template <class T>
void row_gradient(const LayerNormGrad& kernel, std::int64_t row) {
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* grad = static_cast<const T*>(kernel.grad) + row * kernel.size;
  const T* in = static_cast<const T*>(kernel.in) + row * kernel.size;
  T* out = static_cast<T*>(kernel.in_grad) + row * kernel.size;
  if (weight == nullptr) {
    row_gradient(kernel, in, out, kernel.statistics[row], grad);
  } else {
    row_gradient(kernel, in, out, kernel.statistics[row], grad, weight);
  }
}

// Sums over the rows of one tile: of the gradient, and of its products with the normalised input. If `in` is null, the
// products are not needed and hold no meaning.
template <class T>
void affine_sums(const LayerNormGrad& kernel, const NormTile& tile, double (&sums)[2][kTileColumns]) {
  using C = ComputeType<T>;
  const T* values = static_cast<const T*>(kernel.in == nullptr ? kernel.grad : kernel.in);
  column_sums<C, 2>(tile.rows, tile.channels, sums, [&](std::int64_t row) {
    const std::int64_t at = (tile.row + row) * kernel.size + tile.channel;
    const Normaliser<C> x(kernel.statistics[tile.row + row]);
    return [x, grad = ColumnRow<T>(static_cast<const T*>(kernel.grad) + at, tile.channels),
            in = ColumnRow<T>(values + at, tile.channels)](std::int64_t c) {
      return std::array<C, 2>{grad[c], grad[c] * ((in[c] - x.mean) * x.rstd + x.shift)};
    };
  });
}

}  // namespace

}  // namespace tandem::inline v0::kernels::cpu
