#include "step/problem.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/data/npy.h>
#include <tandem/tensor/factories.h>

#include "step/nets.h"

namespace bench {

using tandem::Tensor;

Problem make_problem(const Spec& spec) {
  tandem::manual_seed(20);
  if (const Net* net = find_net(spec.net)) {
    tandem::Shape sizes{spec.batch};
    for (const std::int64_t size : net->input) {
      sizes.push_back(size);
    }
    Problem problem{.spec = spec, .x = {}, .y = {}, .weights = {}, .biases = {}};
    problem.x = tandem::randn(sizes);
    problem.y = tandem::randint(0, std::max<std::int64_t>(1, net->classes), {spec.batch});
    problem.state = net->make().state_dict();
    return problem;
  }
  const std::int64_t outputs = spec.sizes.back();
  Problem problem{.spec = spec, .x = {}, .y = {}, .weights = {}, .biases = {}};
  problem.x = tandem::randn({spec.batch, spec.sizes.front()});
  problem.y = spec.loss == Loss::mse ? tandem::randn({spec.batch, outputs}) : tandem::randint(0, outputs, {spec.batch});
  for (std::size_t layer = 0; layer + 1 < spec.sizes.size(); ++layer) {
    const std::int64_t in = spec.sizes[layer];
    const std::int64_t out = spec.sizes[layer + 1];
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    problem.weights.push_back((tandem::rand({out, in}) * 2 - 1) * bound);
    problem.biases.push_back((tandem::rand({out}) * 2 - 1) * bound);
  }
  return problem;
}

void export_problem(const Problem& problem, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw tandem::IoError(fmt::format("--export {}: cannot make the folder: {}", folder, error.message()));
  }
  const auto save = [&](const std::string& name, const Tensor& tensor) {
    tandem::data::save_npy(fmt::format("{}/{}.npy", folder, name), tensor);
  };
  save("x", problem.x);
  save("y", problem.y);
  for (const auto& [name, tensor] : problem.state) {
    save(name, tensor);
  }
  for (std::size_t layer = 0; layer < problem.layers(); ++layer) {
    save(fmt::format("weight_{}", layer), problem.weights[layer]);
    save(fmt::format("bias_{}", layer), problem.biases[layer]);
  }
}

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000;
  std::vector<std::int64_t> sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > kMost) {
      return {};
    }
    sizes.push_back(size);
    if (next == end) {
      return sizes.size() < 2 ? std::vector<std::int64_t>() : sizes;
    }
    if (*next != '-') {
      return {};
    }
    at = next + 1;
  }
}

}  // namespace bench
