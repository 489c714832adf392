// Learns to draw points from a ring of eight Gaussians by two networks that compete: a Wasserstein GAN whose critic is
// kept from steep slopes by a penalty on its gradient (Gulrajani et al., "Improved training of Wasserstein GANs",
// 2017). The loss contains a gradient, so its own gradient is a second derivative.

#include <array>
#include <cstdint>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/picture.h"

namespace {

using namespace tandem;

constexpr std::int64_t kModes = 8;
constexpr double kWidth = 0.05;  // standard deviation of each Gaussian; the ring's radius is 1

nn::Sequential network(std::int64_t inputs, std::int64_t hidden, std::int64_t outputs) {
  return nn::Sequential(nn::Linear(inputs, hidden), nn::ReLU(), nn::Linear(hidden, hidden), nn::ReLU(),
                        nn::Linear(hidden, hidden), nn::ReLU(), nn::Linear(hidden, outputs));
}

Tensor centres() {
  const Tensor angle = arange(kModes, {.dtype = DType::f32}) * (2 * std::numbers::pi / kModes);
  return stack({cos(angle), sin(angle)}, 1);
}

Tensor ring(std::int64_t count) {
  return centres().index_select(0, randint(0, kModes, {count})) + randn({count, 2}) * kWidth;
}

// How far the slope of the critic is from 1 on the way between data and drawings.
Tensor gradient_penalty(const nn::Sequential& critic, const Tensor& real, const Tensor& drawn) {
  const Tensor part = rand({real.size(0), 1});
  const Tensor between = (real * part + drawn * (1 - part)).detach().requires_grad_();
  const auto [gradient] = autograd::grad(critic(between).sum(), std::array{between}, {.create_graph = true});
  return (sqrt(gradient.pow(2).sum({1}) + 1e-12) - 1).pow(2).mean();
}

struct Quality {
  std::int64_t modes;  // that get at least a quarter of their share
  double near;         // share of points within three standard deviations of a mode
};

Quality quality(const Tensor& points) {
  const Tensor is_near = (points.unsqueeze(1) - centres()).norm(2, {2}) < 3 * kWidth;
  const Tensor shares = is_near.to(DType::f32).mean({0});
  return {(shares >= 0.25 / kModes).sum().item<std::int64_t>(), shares.sum().item()};
}

std::string draw(const nn::Sequential& critic, const Tensor& drawn) {
  constexpr std::int64_t kSide = 60;
  constexpr double kPanel = 220, kReach = 1.5;
  const NoGradGuard no_grad;
  example::Picture picture(740, 320);
  picture.title(20, "A ring of eight Gaussians, as a network draws it");
  picture.text(20, 62, "data");
  picture.points(20, example::Picture::kTop, kPanel, ring(drawn.size(0)), kReach);
  picture.text(260, 62, "the generator");
  picture.points(260, example::Picture::kTop, kPanel, drawn, kReach);
  const Tensor line = linspace(-kReach, kReach, kSide);
  const Tensor grid = stack({line.expand({kSide, kSide}), (line * -1).unsqueeze(1).expand({kSide, kSide})}, 2);
  const Tensor value = critic(grid.reshape({-1, 2})).reshape({1, kSide, kSide});
  picture.text(500, 62, "the critic, dark: likely data");
  picture.image(500, example::Picture::kTop, kPanel, value, value.min().item(), value.max().item());
  return picture.svg();
}

int gradient_penalty_main(int argc, char** argv) {
  constexpr std::int64_t kSteps = 200, kCriticSteps = 5;  // of the generator in an epoch; of the critic for each
  constexpr double kPenalty = 0.1;                        // its weight, as for the toys of the paper
  example::PlainOptions options{.epochs = 20, .batch_size = 256, .lr = 1e-3};
  std::int64_t hidden = 64;
  CLI::App app("Learns to draw a ring of Gaussians, by a critic with a gradient penalty.", "gradient_penalty");
  example::add_plain_options(app, options, "", "Learning rate of Adam, which falls to 0");
  example::add_whole<std::int64_t>(app, "--hidden", "Width of the three hidden layers", hidden, 1, 4096);
  app.footer(
      "Examples:\n"
      "  gradient_penalty              ten seconds\n"
      "  gradient_penalty --epochs 3   what the beginning looks like");
  if (const auto exit_code = example::parse(app, options, argc, argv)) {
    return *exit_code;
  }

  nn::Sequential generator = network(2, hidden, 2);
  nn::Sequential critic = network(2, hidden, 1);
  optim::Adam generator_adam(generator.parameters(), {.lr = options.lr, .betas = {0.5, 0.9}});
  optim::Adam critic_adam(critic.parameters(), {.lr = options.lr, .betas = {0.5, 0.9}});
  optim::CosineAnnealingLR generator_schedule(generator_adam, {.T_max = options.epochs * kSteps});
  optim::CosineAnnealingLR critic_schedule(critic_adam, {.T_max = options.epochs * kSteps});
  const Tensor tested = randn({2000, 2});  // the same noise in each epoch, and for a run that goes on
  checkpoint::Run run(options.out, {.program = "gradient_penalty"});
  run.track(generator, critic, generator_adam, critic_adam, generator_schedule, critic_schedule);
  const auto drawing = [&](const Tensor& noise) {
    const NoGradGuard no_grad;
    return generator(noise);
  };
  auto critic_step = graph::capture([&] {
    critic_adam.zero_grad();
    const Tensor real = ring(options.batch_size);
    const Tensor drawn = drawing(randn({options.batch_size, 2}));
    const Tensor distance = critic(real).mean() - critic(drawn).mean();
    (gradient_penalty(critic, real, drawn) * kPenalty - distance).backward();
    critic_adam.step();
  });
  auto generator_step = graph::capture([&] {
    generator_adam.zero_grad();
    (critic(generator(randn({options.batch_size, 2}))).mean() * -1).backward();
    generator_adam.step();
  });
  telemetry::Progress progress({.total = kSteps, .unit = "steps", .enabled = !options.quiet});
  Quality found = quality(drawing(tested));
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    progress.advance(run.steps() - epoch * kSteps);  // made before an interruption
    while (run.steps() < (epoch + 1) * kSteps) {
      for (std::int64_t k = 0; k < kCriticSteps; ++k) {
        critic_step();
      }
      generator_step();
      generator_schedule.step();
      critic_schedule.step();
      progress.advance(1);
      run.step();
    }
    found = quality(drawing(tested));
    progress.set("near a mode", fmt::format("{:.1f} %", 100 * found.near));
    progress.end_epoch();
    run.log({{"epoch", epoch + 1}, {"modes", found.modes}, {"near", found.near}});
  }
  run.folder()->write_file("gradient_penalty.svg", draw(critic, drawing(tested)));
  fmt::print("modes: {} of {}, points within three standard deviations of one: {:.1f} %\n", found.modes, kModes,
             100 * found.near);
  fmt::print("run folder: {}  (metrics.jsonl, gradient_penalty.svg: data, drawings, the critic)\n",
             run.folder()->path());
  if (options.json) {
    example::print_result_json({{"modes", found.modes}, {"near", found.near}, {"seed", options.seed}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, gradient_penalty_main); }
