#include <utility>

#include <tandem/autograd/batch_exchange.h>
#include <tandem/autograd/ops/norm.h>
#include <tandem/core/grad_mode.h>
#include <tandem/kernels/batch_norm.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Sizes of what the channels of x have. `is_part`: others have more values.
Shape check_channels(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, bool training,
                     bool is_part) {
  const core::MessagePrefix prefix{"batch_norm"};
  check_floating("batch_norm", x);
  check<ShapeError>(x.dim() >= 2, "{}the input must be [batch, channels, ...], got {}", prefix, x.shape());
  const Shape channels{x.shape()[1]};
  check<ConfigError>(running_mean.defined() == running_var.defined(),
                     "{}running_mean and running_var go together: give both or none", prefix);
  check<ConfigError>(training || running_mean.defined(),
                     "{}without training, running_mean and running_var must be given", prefix);
  const AroundDim around(x.shape(), 1);
  check<ValueError>(!training || is_part || around.outer * around.inner != 1,
                    "{}training needs more than one value per channel, got the input {}; use a larger batch, or "
                    "evaluation mode [TDM-E305]",
                    prefix, x.shape());
  for (const auto& [what, running] : {std::pair{"running_mean", &running_mean}, {"running_var", &running_var}}) {
    check_part("batch_norm", x, what, *running, channels);
    if (training && running->defined()) {
      check<AutogradError>(!running->requires_grad(), "{}{} is changed in place and must not require a gradient",
                           prefix, what);
      check<ShapeError>(running->is_contiguous(), "{}{} is changed in place and must be contiguous", prefix, what);
    }
  }
  return channels;
}

// Sends this owner's part of a batch to all owners, and returns all parts.
View gather_parts(const char* what, BatchExchange& exchange, const View& mine) {
  Shape sizes{exchange.parts()};
  for (int i = 0; i < mine.sizes.ndim(); ++i) {
    sizes.push_back(mine.sizes[i]);
  }
  const View all = detail::empty_view(sizes, mine.dtype, mine.device());
  detail::placed_work(what, [exchange = &exchange, from = detail::borrowed(mine), to = detail::borrowed(all)] {
    const NoGradGuard no_grad;
    exchange->gather(Tensor(to), Tensor(from));
  });
  return all;
}

// Where the channels lie. Channels-last images are rows of them.
AroundDim around_channels(const View& in) {
  AroundDim around(in.sizes, 1);
  if (in.is_channels_last()) {
    around.outer *= std::exchange(around.inner, 1);
  }
  return around;
}

// The gradients of an owner's part, where the means of the sums are over all parts.
void gradients_of_part(Gradients& g, const SavedNorm& saved, kernels::BatchNormGrad kernel, BatchExchange& exchange,
                       const View& moments) {
  if (!g.wants(0)) {
    return saved.launch(g, kernel);
  }
  const View sums = detail::empty_view({kernel.channels, 2}, DType::f64, moments.device());
  kernel.sums = static_cast<kernels::NormSums*>(sums.data());
  saved.launch(g, kernel, {1, 2});
  const View all = gather_parts("batch_norm: sums of gradients", exchange, sums);
  kernel.sums = nullptr;
  kernel.parts = exchange.parts();
  kernel.part_sums = static_cast<const kernels::NormSums*>(all.data());
  kernel.part_moments = static_cast<const kernels::Moments<>*>(moments.data());
  saved.launch(g, kernel, {0});
}

Tensor mean_of_channels(const Tensor& x, const Shape& channels) {
  return sum_to_size(x, channels) * (static_cast<double>(channels.numel()) / static_cast<double>(x.numel()));
}

Tensor normalise_batch(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                       const Tensor& bias, double eps, bool training, const BatchNormTraining& options) {
  const Tensor& kept = weight.defined() ? weight : running_mean;
  if (raises({&x}) && kept.defined() && !raises({&kept})) [[unlikely]] {
    return normalise_batch(raised(x), running_mean, running_var, weight, bias, eps, training, options);
  }
  const std::shared_ptr<BatchExchange>& exchange = options.exchange;
  const Shape channels = check_channels(x, running_mean, running_var, training, exchange != nullptr);
  check_part("batch_norm", x, "weight", weight, channels);
  check_part("batch_norm", x, "bias", bias, channels);
  const View in = detail::contiguous(x.raw(), x.raw().memory_format());
  const View scale = dense(weight);
  const View shift = dense(bias);
  const View mean = dense(running_mean);
  const View variance = dense(running_var);
  const View batches = dense(options.batches);
  const AroundDim around = around_channels(in);
  View out = detail::empty_like(in);
  const View statistics = statistics_view(around.size, in.device());
  kernels::Context& context = detail::context_of(in);
  kernels::BatchNorm kernel{.dtype = in.dtype,
                            .training = training,
                            .outer = around.outer,
                            .channels = around.size,
                            .inner = around.inner,
                            .eps = eps,
                            .momentum = {options.momentum, static_cast<const std::int64_t*>(data_of(batches))},
                            .in = in.data(),
                            .weight = data_of(scale),
                            .bias = data_of(shift),
                            .running_mean = data_of(mean),
                            .running_var = data_of(variance),
                            .statistics = statistics_of(statistics),
                            .out = out.data()};
  View moments;
  if (exchange != nullptr) {
    const View mine = detail::empty_view({around.size, 3}, DType::f64, in.device());
    kernels::launch(context, kernels::BatchNormMoments{.dtype = in.dtype,
                                                       .outer = around.outer,
                                                       .channels = around.size,
                                                       .inner = around.inner,
                                                       .in = in.data(),
                                                       .moments = static_cast<kernels::Moments<>*>(mine.data())});
    moments = gather_parts("batch_norm: moments", *exchange, mine);
    kernels::launch(context, kernels::BatchNormJoin{.dtype = in.dtype,
                                                    .parts = exchange->parts(),
                                                    .channels = around.size,
                                                    .eps = eps,
                                                    .momentum = kernel.momentum,
                                                    .moments = static_cast<const kernels::Moments<>*>(moments.data()),
                                                    .running_mean = kernel.running_mean,
                                                    .running_var = kernel.running_var,
                                                    .statistics = kernel.statistics});
    kernel.training = false;
    kernel.running_mean = nullptr;
    kernel.running_var = nullptr;
  }
  kernels::launch(context, kernel);
  if (training && mean.defined()) {
    mean.storage->bump_version();
    variance.storage->bump_version();
  }
  return record("batch_norm", std::move(out), {&x, &weight, &bias}, [&] {
    return [saved = SavedNorm(x, in, weight, statistics, training), around, training, exchange, moments, eps](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        check<AutogradError>(exchange == nullptr, "grad: '{}' over several ranks has no second derivative", g.op());
        Shape per_channel = Shape::filled(g.output().dim(), 1);
        per_channel[1] = around.size;
        saved.give(g, per_channel, [&](const Tensor& whole) {
          if (!training) {
            const Tensor known = saved.statistics(g).to(whole.dtype());
            return (whole - known.select(1, 0).reshape(per_channel)) * known.select(1, 1).reshape(per_channel);
          }
          const Tensor apart = whole - mean_of_channels(whole, per_channel);
          return apart * (mean_of_channels(apart * apart, per_channel) + eps).rsqrt();
        });
      } else {
        kernels::BatchNormGrad gradients{};
        gradients.training = training;
        gradients.outer = around.outer;
        gradients.channels = around.size;
        gradients.inner = around.inner;
        if (exchange != nullptr) {
          return gradients_of_part(g, saved, gradients, *exchange, moments);
        }
        saved.launch(g, gradients);
      }
    };
  });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  return normalise_batch(x, running_mean, running_var, weight, bias, eps, training, {.momentum = momentum});
}

Tensor autograd::batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                            const Tensor& weight, const Tensor& bias, double eps, const BatchNormTraining& training) {
  return normalise_batch(x, running_mean, running_var, weight, bias, eps, true, training);
}

}  // namespace tandem::inline v0
