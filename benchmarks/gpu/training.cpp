#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "gpu/bench.h"
#include "gpu/cases.h"
#include "step/multiply_adds.h"
#include "step/precision_scope.h"
#include "step/step.h"

namespace bench::gpu {

namespace {

using namespace tandem;

constexpr int kNetSteps = 10;

// The problem is drawn on the CPU, so that peers have the same numbers, and then rounded to the type, as in the peers.
Problem on_gpu(Problem problem, DType dtype, bool channels_last) {
  const auto move = [&](Tensor& tensor) {
    tensor = tensor.to("cuda:0");
    if (is_floating_point(tensor.dtype())) {
      tensor = tensor.to(dtype);
    }
  };
  move(problem.x);
  move(problem.y);
  std::ranges::for_each(problem.weights, move);
  std::ranges::for_each(problem.biases, move);
  problem.x = channels_last ? problem.x.contiguous(MemoryFormat::channels_last) : problem.x;
  return problem;
}

// Counts the products of the forward pass, of the weights' gradients and (except in the first layer) of the inputs'
// gradients. Adam reads the parameter, its gradient and both moments, and writes all but the gradient. What the layers
// of a net read and write besides is not counted.
double floor_of(const TrainCase& c, const Problem& problem, Ceilings& ceilings) {
  double flops = c.spec.net.empty() ? 0 : 2 * multiply_adds_of(*make_eager(problem));
  double parameters = 0;
  for (const auto& [name, tensor] : problem.state) {
    const bool is_buffer = name.find("running_") != std::string::npos || !is_floating_point(tensor.dtype());
    parameters += is_buffer ? 0 : static_cast<double>(tensor.numel());
  }
  for (std::size_t layer = 0; layer + 1 < c.spec.sizes.size(); ++layer) {
    const double weights = static_cast<double>(c.spec.sizes[layer]) * static_cast<double>(c.spec.sizes[layer + 1]);
    flops += (layer == 0 ? 4 : 6) * weights * static_cast<double>(c.spec.batch);
    parameters += weights + static_cast<double>(c.spec.sizes[layer + 1]);
  }
  return ceilings.floor_us(7 * parameters * static_cast<double>(item_size(c.dtype)), flops, c.dtype, c.tf32);
}

std::string folder_of(const Options& options, const TrainCase& c) {
  std::string name = c.name;
  std::ranges::replace(name, ' ', '_');
  return options.folder + "/" + name;
}

}  // namespace

void run_training(const std::string& workload, const Options& options, Ceilings& ceilings) {
  for (const TrainCase& c : train_cases(workload, options.smoke)) {
    const PrecisionScope precision(c.tf32 ? "high" : "highest");
    // A net learns its one batch by heart, and then a small loss has large relative differences.
    const int check_steps = c.spec.net.empty() ? options.check_steps : std::min(options.check_steps, kNetSteps);
    Problem problem;
    {
      const core::DeviceScope cpu("cpu");
      problem = make_problem(c.spec);
      if (!options.folder.empty()) {
        export_problem(problem, folder_of(options, c));
        telemetry::Fields fields = fields_of(c);
        fields.push_back({"data", folder_of(options, c)});
        fields.push_back({"check_steps", std::int64_t{check_steps}});
        export_case(options, fields);
      }
    }
    problem = on_gpu(std::move(problem), c.dtype, c.channels_last);
    const double floor = floor_of(c, problem, ceilings);
    // A GPU fuses no update.
    for (const Mode& mode : {Mode{"eager", make_eager}, Mode{"captured", make_captured}}) {
      const std::unique_ptr<Step> step = mode.make(problem);
      step->run(check_steps);
      const double loss = step->loss();
      print_result(fields_of(c), mode.name, measure(options.effort, [&] { step->run(1); }), floor,
                   {{"check_steps", std::int64_t{check_steps}}, {"loss_after_steps", loss}});
    }
  }
}

void run_adam(const Options& options, Ceilings& ceilings) {
  for (const AdamCase& c : adam_cases(options.smoke)) {
    export_case(options, fields_of(c));
    std::vector<Tensor> parameters;
    for (std::int64_t i = 0; i < c.tensors; ++i) {
      parameters.push_back(randn({c.elements}).to(c.dtype));
      parameters.back().requires_grad_();
      (parameters.back() * parameters.back()).sum().backward();
    }
    optim::Adam adam(parameters, {.lr = 1e-4});
    const double bytes = 7.0 * static_cast<double>(c.tensors * c.elements) * static_cast<double>(item_size(c.dtype));
    const double floor = ceilings.floor_us(bytes, 0, c.dtype);
    print_result(fields_of(c), "eager", measure(options.effort, [&] { adam.step(); }), floor);
    auto captured = graph::CapturedStep([&] { adam.step(); });
    print_result(fields_of(c), "captured", measure(options.effort, [&] { captured(); }), floor);
  }
}

}  // namespace bench::gpu
