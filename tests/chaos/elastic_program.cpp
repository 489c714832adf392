// A rank of a training that goes on without lost ranks: `tandem run -n N --elastic MIN chaos_elastic FOLDER PLAN`. The
// run is in FOLDER/run. Each rank adds a line to FOLDER/rank<r> for each step: "step <ns> <ranks>". PLAN is the pause
// in each step in microseconds; with "throws" behind it, rank 1 of 4 throws an error after ten steps.
//
// Each sample has a weight of its own, to which each of its uses in a step adds -1. All weights are minus the number of
// epochs if no sample was lost or used twice.

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

constexpr std::int64_t kSamples = 240;

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

struct Net : nn::Module<Net> {
  nn::Linear uses = child("uses", nn::Linear(kSamples, 1, {.bias = false, .dtype = DType::f64}));
  Tensor forward(const Tensor& x) const { return uses(x); }
};

void train(parallel::ProcessGroup& group, const std::string& folder, const std::string& plan) {
  const std::chrono::microseconds pause(std::atoi(plan.c_str()));
  const bool throws = plan.ends_with("throws") && group.size() == 4 && group.rank() == 1;
  const data::TensorDataset samples(eye(kSamples, {.dtype = DType::f64}), zeros({kSamples}));
  Net model;
  {
    const NoGradGuard no_grad;
    model.uses.weight.zero_();
  }
  optim::SGD sgd(model.parameters(), {.lr = 1});
  parallel::DistributedDataParallel ddp(model);
  data::DataLoader loader(samples, {.batch_size = 3,
                                    .sampler = std::make_shared<parallel::DistributedSampler>(
                                        samples, parallel::DistributedSamplerOptions{.seed = 3, .exact = true})});
  checkpoint::Run run(folder + "/run", {.every = 20});
  run.track(model, sgd, loader);
  std::ofstream report(fmt::format("{}/rank{}", folder, std::getenv("RANK")), std::ios::app);
  for (const std::int64_t epoch : run.epochs(4)) {
    for (const auto& [x, y] : loader) {
      sgd.zero_grad();
      (ddp(x).sum() * group.size()).backward();
      sgd.step();
      run.log({{"step", run.steps() + 1}});
      std::this_thread::sleep_for(pause);
      if (throws && run.steps() == 10) {
        throw ValueError("this rank has had enough");
      }
      run.step();
      report << fmt::format("step {} {}", now(), group.size()) << std::endl;
    }
    run.log({{"epoch", epoch}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::getenv("RANK") == nullptr) {
    fmt::print(stderr, "usage: tandem run -n N --elastic MIN chaos_elastic FOLDER PLAN\n");
    return 2;
  }
  try {
    parallel::run_elastic([&](parallel::ProcessGroup& group) { train(group, argv[1], argv[2]); });
  } catch (const checkpoint::Interrupted& stop) {
    return 128 + stop.signal();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
