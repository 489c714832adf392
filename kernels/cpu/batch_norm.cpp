#include <tandem/kernels/batch_norm.h>

#include <cmath>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/batch_norm_tiles.h>
#include <tandem/kernels/scratch.h>

namespace tandem::inline v0::kernels {

namespace {

using cpu::Moments;
using cpu::NormTile;
using cpu::Tiles;
using Sums = cpu::ChannelSums;

// Computes the statistics of the values and updates the running ones.
template <class T>
void batch_statistics(Context& context, const BatchNorm& kernel, const Tiles& tiles) {
  using C = ComputeType<T>;
  const ScratchScope scope(context.scratch);
  auto* partial = context.scratch.allocate_array<Moments>(static_cast<std::size_t>(tiles.down * tiles.channels));
  cpu::for_each_tile(tiles, [&](const NormTile& tile) {
    Moments* out = partial + tile.part * tiles.channels + tile.channel;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(tile_moments_f32)(static_cast<const T*>(kernel.in), tiles, tile, out);
    } else {
      cpu::tile_moments(static_cast<const T*>(kernel.in), tiles, tile, out);
    }
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

template <class T>
void normalise(const BatchNorm& kernel, const Tiles& tiles) {
  cpu::for_each_tile(tiles, [&](const NormTile& tile) {
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(normalise_tile_f32)(kernel, tiles, tile);
    } else {
      cpu::normalise_tile<T>(kernel, tiles, tile);
    }
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
    cpu::for_each_tile(tiles, [&](const NormTile& tile) {
      Sums* out = partial + tile.part * tiles.channels + tile.channel;
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(tile_sums_f32)(kernel, tiles, tile, out);
      } else {
        cpu::tile_sums<T>(kernel, tiles, tile, out);
      }
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
    cpu::for_each_tile(tiles, [&](const NormTile& tile) {
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(input_gradient_tile_f32)(kernel, tiles, sums, tile);
      } else {
        cpu::input_gradient_tile<T>(kernel, tiles, sums, tile);
      }
    });
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
