#include "scaling/ddp/schedule.h"

#include <algorithm>

#include <tandem/tandem.h>

#include "step/clock.h"
#include "step/measure.h"

namespace bench::ddp {

using namespace tandem;

std::vector<double> largest(std::vector<double> values, parallel::ProcessGroup& group) {
  const Tensor all = from_data(values);
  group.all_reduce(all, parallel::ReduceOp::max);
  return all.to_vector<double>();
}

namespace {

double seconds_of_all_reduce(parallel::ProcessGroup& group, std::int64_t bytes) {
  const Tensor memory = zeros({std::max<std::int64_t>(1, bytes / 4)});
  parallel::PlannedCollective plan = group.plan_all_reduce(memory.raw(), parallel::ReduceOp::avg);
  const int times = bytes > 1'000'000 ? 9 : 101;
  std::vector<double> seconds;
  for (int i = 0; i < times + 2; ++i) {
    group.barrier();
    const double start = now(false);
    plan.run();
    if (i >= 2) {
      seconds.push_back(now(false) - start);
    }
  }
  return largest({median(seconds)}, group)[0];
}

}  // namespace

LinkCost measure_link(parallel::ProcessGroup& group, std::int64_t bytes) {
  constexpr std::int64_t kSmall = 4096;
  const std::int64_t large = std::max(bytes, 4 * kSmall);
  const double of_small = seconds_of_all_reduce(group, kSmall);
  const double of_large = seconds_of_all_reduce(group, large);
  const double beta = std::max(0.0, (of_large - of_small) / static_cast<double>(large - kSmall));
  return {.alpha = std::max(0.0, of_small - beta * static_cast<double>(kSmall)), .beta = beta};
}

double Schedule::exchange() const {
  double sum = 0;
  for (const std::int64_t bytes : bucket_bytes) {
    sum += link.seconds(bytes);
  }
  return sum;
}

double Schedule::seconds() const {
  double arrived = 0;
  for (std::size_t b = 0; b < bucket_bytes.size(); ++b) {
    arrived = std::max(arrived, course.ready[b]) + link.seconds(bucket_bytes[b]);
  }
  return course.forward + std::max(course.backward, arrived) + course.optimizer;
}

Schedule measure_schedule(RankTraining& training, parallel::ProcessGroup& group, int steps) {
  std::vector<std::vector<double>> times;  // for each quantity timed, one value per step
  for (int i = 0; i < steps; ++i) {
    group.barrier();
    const Course course = training.course();
    std::vector<double> values{course.forward, course.backward, course.optimizer};
    values.insert(values.end(), course.ready.begin(), course.ready.end());
    times.resize(values.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      times[k].push_back(values[k]);
    }
  }
  std::vector<double> medians;
  std::ranges::transform(times, std::back_inserter(medians), [](const auto& of_steps) { return median(of_steps); });
  medians = largest(medians, group);
  const std::vector<std::int64_t>& bytes = training.bucket_bytes();
  return {.course = {.forward = medians[0],
                     .ready = {medians.begin() + 3, medians.end()},
                     .backward = medians[1],
                     .optimizer = medians[2]},
          .link = group.size() > 1 ? measure_link(group, *std::ranges::max_element(bytes)) : LinkCost{},
          .bucket_bytes = bytes};
}

}  // namespace bench::ddp
