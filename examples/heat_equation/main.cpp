// Solves the heat equation by a neural network, trained on nothing but the equation: a physics-informed network (Raissi
// et al., "Physics-informed neural networks", 2019) whose form has the right values at the edges and at the beginning
// (Lagaris et al., "Artificial neural networks for solving ordinary and partial differential equations", 1998).

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/picture.h"

namespace {

using namespace tandem;
using std::numbers::pi;

constexpr double kConductivity = 0.1;

// u(x, t) on a rod from 0 to 1, which is sin(pi x) at the time 0 and 0 at both ends.
struct Temperature : nn::Module<Temperature> {
  explicit Temperature(std::int64_t hidden)
      : net(child("net", nn::Sequential(nn::Linear(2, hidden), nn::Tanh(), nn::Linear(hidden, hidden), nn::Tanh(),
                                        nn::Linear(hidden, hidden), nn::Tanh(), nn::Linear(hidden, 1)))) {}

  Tensor forward(const Tensor& at) const {
    const Tensor x = at.narrow(1, 0, 1);
    const Tensor t = at.narrow(1, 1, 1);
    return sin(x * pi) + t * x * (1 - x) * net(at);
  }

  nn::Sequential net;
};

// u_t - c u_xx, which is 0 for a solution.
Tensor residual(const Temperature& u, const Tensor& points) {
  const Tensor at = points.detach().requires_grad_();
  const auto [du] = autograd::grad(u(at).sum(), std::array{at}, {.create_graph = true});
  const auto [ddu] = autograd::grad(du.narrow(1, 0, 1).sum(), std::array{at}, {.create_graph = true});
  return du.narrow(1, 1, 1) - ddu.narrow(1, 0, 1) * kConductivity;
}

// Places and times [side * side, 2], one row of the grid for each time.
Tensor grid(std::int64_t side) {
  const Tensor line = arange(side, {.dtype = DType::f32}) / static_cast<double>(side - 1);
  return stack({line.expand({side, side}).reshape({-1}), line.unsqueeze(1).expand({side, side}).reshape({-1})}, 1);
}

Tensor exact(const Tensor& at) {
  return sin(at.narrow(1, 0, 1) * pi) * exp(at.narrow(1, 1, 1) * (-pi * pi * kConductivity));
}

double relative_error(const Temperature& u, const Tensor& at) {
  const NoGradGuard no_grad;
  return (u(at) - exact(at)).norm().item() / exact(at).norm().item();
}

std::string draw(const Temperature& u) {
  constexpr std::int64_t kSide = 50;
  const NoGradGuard no_grad;
  const Tensor at = grid(kSide);
  const Tensor wrong = abs(u(at) - exact(at)).reshape({1, kSide, kSide});
  const double largest = wrong.max().item();
  example::Picture picture(740, 320);
  picture.title(20, "Temperature over place (to the right) and time (down)");
  const auto panel = [&](int i, const std::string& name, const Tensor& image, double high) {
    picture.text(20 + 240 * i, 62, name);
    picture.image(20 + 240 * i, example::Picture::kTop, 220, image, 0, high);
  };
  panel(0, "exact", exact(at).reshape({1, kSide, kSide}), 1);
  panel(1, "the network", u(at).reshape({1, kSide, kSide}), 1);
  panel(2, fmt::format("error, black: {:.1e}", largest), wrong, largest);
  return picture.svg();
}

int heat_equation(int argc, char** argv) {
  constexpr std::int64_t kSteps = 100;  // in an epoch
  example::PlainOptions options{.epochs = 40, .batch_size = 4096, .lr = 3e-3};
  std::int64_t hidden = 64;
  CLI::App app("Solves the heat equation by a network that is trained on the equation alone.", "heat_equation");
  example::add_plain_options(app, options, "", "Learning rate of Adam, which falls to 0");
  example::add_whole<std::int64_t>(app, "--hidden", "Width of the three hidden layers", hidden, 1, 4096);
  app.footer(
      "An epoch has 100 steps, a step --batch-size places and times.\n\n"
      "Examples:\n"
      "  heat_equation                            a minute, to a relative error below 1e-3\n"
      "  heat_equation --epochs 5 --hidden 32     a few seconds");
  if (const auto exit_code = example::parse(app, options, argc, argv)) {
    return *exit_code;
  }

  Temperature u(hidden);
  optim::Adam adam(u.parameters(), {.lr = options.lr});
  optim::CosineAnnealingLR schedule(adam, {.T_max = options.epochs * kSteps});
  checkpoint::Run run(options.out, {.program = "heat_equation"});
  run.track(u, adam, schedule);
  auto step = graph::capture([&](const Tensor& points) {
    adam.zero_grad();
    const Tensor loss = residual(u, points).pow(2).mean();
    loss.backward();
    adam.step();
    return loss;
  });
  telemetry::Progress progress({.total = kSteps, .unit = "steps", .enabled = !options.quiet});
  const Tensor test = grid(101);
  double error = relative_error(u, test);
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    progress.advance(run.steps() - epoch * kSteps);  // made before an interruption
    while (run.steps() < (epoch + 1) * kSteps) {
      const Tensor loss = step(rand({options.batch_size, 2}));
      schedule.step();
      progress.advance(1);
      run.step(loss);
    }
    error = relative_error(u, test);
    progress.set("relative error", fmt::format("{:.2e}", error));
    progress.end_epoch();
    run.log({{"epoch", epoch + 1}, {"relative_error", error}});
  }
  run.folder()->write_file("heat_equation.svg", draw(u));
  fmt::print("relative error: {:.2e}  (L2, on a grid of 101 places and times)\n", error);
  fmt::print("run folder: {}  (metrics.jsonl, heat_equation.svg: the solution and its error)\n", run.folder()->path());
  if (options.json) {
    example::print_result_json({{"relative_error", error}, {"epochs", options.epochs}, {"seed", options.seed}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, heat_equation); }
