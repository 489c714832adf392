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

// Joins `parts` in their order and hands (channel, sum) to take.
template <class Sums, class Take>
void join(const Sums* partial, std::int64_t parts, std::int64_t channels, Take&& take) {
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    Sums all;
    for (std::int64_t part = 0; part < parts; ++part) {
      all.add(partial[part * channels + channel]);
    }
    take(channel, all);
  }
}

// Hands the moments of each channel's values to take(channel, moments).
template <class T, class Take>
void moments_of_channels(Context& context, const void* in, const Tiles& tiles, Take&& take) {
  const ScratchScope scope(context.scratch);
  auto* partial = context.scratch.allocate_array<Moments>(static_cast<std::size_t>(tiles.down * tiles.channels));
  cpu::for_each_tile(tiles, [&](const NormTile& tile) {
    Moments* out = partial + tile.part * tiles.channels + tile.channel;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(tile_moments_f32)(static_cast<const T*>(in), tiles, tile, out);
    } else {
      cpu::tile_moments(static_cast<const T*>(in), tiles, tile, out);
    }
  });
  join(partial, tiles.down, tiles.channels, take);
}

// Returns a function that stores a channel's statistics for a BatchNorm or BatchNormJoin, and updates the running ones.
template <class T, class Kernel>
auto keep_statistics(const Kernel& kernel) {
  return [&kernel, momentum = kernel.momentum.get()](std::int64_t channel, const Moments& all) {
    const auto update = [&](void* running, double value) {
      T& old = static_cast<T*>(running)[channel];
      old = T(static_cast<ComputeType<T>>((1 - momentum) * static_cast<double>(old) + momentum * value));
    };
    kernel.statistics[channel] = all.statistics(kernel.eps);
    if (kernel.running_mean != nullptr && all.count > 1) {
      update(kernel.running_mean, all.mean);
      update(kernel.running_var, all.squares / (all.count - 1));
    }
  };
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
  const bool has_sums = kernel.weight_grad != nullptr || kernel.bias_grad != nullptr || kernel.sums != nullptr;
  NormSums* means = nullptr;
  if (has_sums || kernel.training) {
    means = context.scratch.allocate_array<NormSums>(static_cast<std::size_t>((tiles.down + 1) * tiles.channels));
  }
  if (has_sums || (kernel.training && kernel.parts == 0)) {
    NormSums* partial = means + tiles.channels;
    cpu::for_each_tile(tiles, [&](const NormTile& tile) {
      NormSums* out = partial + tile.part * tiles.channels + tile.channel;
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(tile_sums_f32)(kernel, tiles, tile, out);
      } else {
        cpu::tile_sums<T>(kernel, tiles, tile, out);
      }
    });
    const auto count = static_cast<double>(tiles.outer * tiles.inner);
    join(partial, tiles.down, tiles.channels, [&](std::int64_t channel, const NormSums& all) {
      means[channel] = {all.grad / count, all.product / count};
      if (kernel.sums != nullptr) {
        kernel.sums[channel] = all;
      }
      if (kernel.weight_grad != nullptr) {
        cpu::store_gradient<T>(kernel.weight_grad, channel, all.product, kernel.accumulate_weight);
      }
      if (kernel.bias_grad != nullptr) {
        cpu::store_gradient<T>(kernel.bias_grad, channel, all.grad, kernel.accumulate_bias);
      }
    });
  }
  if (kernel.parts > 0) {
    join(kernel.part_sums, kernel.parts, tiles.channels,
         [&](std::int64_t channel, const NormSums& all) { means[channel] = all; });
    join(kernel.part_moments, kernel.parts, tiles.channels, [&](std::int64_t channel, const Moments& all) {
      means[channel] = {means[channel].grad / all.count, means[channel].product / all.count};
    });
  }
  if (kernel.in_grad != nullptr) {
    cpu::for_each_tile(tiles, [&](const NormTile& tile) {
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(input_gradient_tile_f32)(kernel, tiles, means, tile);
      } else {
        cpu::input_gradient_tile<T>(kernel, tiles, means, tile);
      }
    });
  }
}

}  // namespace

void run(OnCpu, Context& context, const BatchNorm& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNorm::kName, [&]<class T>() {
    const Tiles tiles{kernel.outer, kernel.channels, kernel.inner};
    if (kernel.training) {
      moments_of_channels<T>(context, kernel.in, tiles, keep_statistics<T>(kernel));
    } else if (kernel.running_mean != nullptr) {
      running_statistics<T>(kernel);
    }
    normalise<T>(kernel, tiles);
  });
}

void run(OnCpu, Context& context, const BatchNormMoments& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNormMoments::kName, [&]<class T>() {
    moments_of_channels<T>(context, kernel.in, Tiles{kernel.outer, kernel.channels, kernel.inner},
                           [&](std::int64_t channel, const cpu::Moments& all) { kernel.moments[channel] = all; });
  });
}

void run(OnCpu, Context& /*context*/, const BatchNormJoin& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNormJoin::kName, [&]<class T>() {
    join(kernel.moments, kernel.parts, kernel.channels, keep_statistics<T>(kernel));
  });
}

void run(OnCpu, Context& context, const BatchNormGrad& kernel) {
  core::dispatch_floating(kernel.dtype, BatchNormGrad::kName, [&]<class T>() { gradients<T>(context, kernel); });
}

}  // namespace tandem::inline v0::kernels
