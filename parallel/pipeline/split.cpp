#include <tandem/parallel/pipeline/split.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/frame.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;

void check_stages(const nn::Sequential& model, std::size_t stages) {
  check<ConfigError>(stages >= 1 && stages <= model.size(),
                     "pipeline: {} stages for a Sequential of {} layers; each stage needs a layer of its own", stages,
                     model.size());
}

StageSplit split_of(std::vector<double> costs, const char* unit, std::size_t stages) {
  std::vector<std::size_t> layers = detail::split_evenly(costs, stages);
  return {.layers = std::move(layers), .costs = std::move(costs), .unit = unit};
}

// Stand-ins for a layer's parameters and buffers, which keep what the layer's runs would change.
void bind_stand_ins(core::Frame& frame, const nn::ModuleRef& layer) {
  for (const Tensor& parameter : layer.parameters()) {
    Tensor stand_in = parameter.detach();
    stand_in.requires_grad_(parameter.requires_grad());
    frame.bind(parameter, stand_in);
  }
  for (const Tensor& buffer : layer.buffers()) {
    frame.bind(buffer, buffer.detach().clone());
  }
}

}  // namespace

std::vector<std::size_t> detail::split_evenly(const std::vector<double>& costs, std::size_t parts) {
  const std::size_t items = costs.size();
  std::vector<double> before(items + 1);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // best[p][i]: the smallest largest sum of the first i items in p parts; start[p][i]: where the last of them begins.
  std::vector<std::vector<double>> best(parts + 1,
                                        std::vector<double>(items + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> start(parts + 1, std::vector<std::size_t>(items + 1));
  best[0][0] = 0;
  for (std::size_t part = 1; part <= parts; ++part) {
    for (std::size_t end = part; end <= items; ++end) {
      for (std::size_t begin = part - 1; begin < end; ++begin) {
        const double largest = std::max(best[part - 1][begin], before[end] - before[begin]);
        if (largest <= best[part][end]) {  // of equal ones the last
          best[part][end] = largest;
          start[part][end] = begin;
        }
      }
    }
  }
  std::vector<std::size_t> counts(parts);
  std::size_t end = items;
  for (std::size_t part = parts; part > 0; --part) {
    counts[part - 1] = end - start[part][end];
    end = start[part][end];
  }
  return counts;
}

std::vector<double> StageSplit::stage_costs() const {
  std::vector<double> sums;
  auto layer = costs.begin();
  for (const std::size_t count : layers) {
    const auto next = layer + static_cast<std::ptrdiff_t>(count);
    sums.push_back(std::accumulate(layer, next, 0.0));
    layer = next;
  }
  return sums;
}

StageSplit split_by_bytes(const nn::Sequential& model, std::size_t stages) {
  check_stages(model, stages);
  std::vector<double> bytes;
  for (const nn::ModuleRef& layer : model.children()) {
    bytes.push_back(static_cast<double>(layer.num_bytes()));
  }
  return split_of(std::move(bytes), "bytes", stages);
}

StageSplit split_by_time(nn::Sequential& model, const Tensor& x, std::size_t stages) {
  check_stages(model, stages);
  constexpr int kRuns = 6;
  std::vector<double> times;
  Generator generator;
  const GeneratorScope draws(generator);
  const std::vector<nn::ModuleRef> layers = model.children();
  Tensor input = x.detach();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    double least = std::numeric_limits<double>::infinity();
    Tensor output;
    for (int run = 0; run < kRuns; ++run) {
      core::Frame frame;
      bind_stand_ins(frame, layers[i]);
      const core::FrameScope active(frame);
      Tensor in = input.detach();
      if (is_floating_point(in.dtype())) {
        in.requires_grad_();
      }
      const auto began = Clock::now();
      output = model.forward(in, i, i + 1);
      if (output.requires_grad()) {
        output.backward(ones_like(output.detach()));
      }
      if (output.device().type == DeviceType::cuda) {
        cuda::synchronize(output.device());
      }
      least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - began).count());
    }
    times.push_back(least);
    input = output;
  }
  return split_of(std::move(times), "us", stages);
}

std::string to_string(const StageSplit& split) {
  const std::vector<double> costs = split.stage_costs();
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::string text = fmt::format("{:<6} {:<9} {:>14} {:>7}\n", "stage", "layers", split.unit, "share");
  std::size_t first = 0;
  for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
    const std::size_t last = first + split.layers[stage] - 1;
    text += fmt::format("{:<6} {:<9} {:>14.0f} {:>5.1f} %\n", stage,
                        first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last), costs[stage],
                        total > 0 ? 100 * costs[stage] / total : 0);
    first = last + 1;
  }
  return text;
}

}  // namespace tandem::inline v0::parallel
