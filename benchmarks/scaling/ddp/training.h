#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>

#include "step/model.h"

namespace bench::ddp {

/// What a step is held against. The first two are rank 0's alone, while the others wait.
enum class Way : std::uint8_t {
  one_rank,     // the joined batch
  one_part,     // a rank's part of it
  no_exchange,  // every rank its part, and nothing is averaged
  ddp,
  no_overlap  // the same buckets, all of them after the backward pass
};
inline constexpr std::size_t kWays = 5;
/// "one rank", ...
const char* name_of(Way way);

/// When things happen in a step whose buckets stay where they are, in seconds: what an exchange could overlap with.
struct Course {
  double forward = 0;              // to the start of backward()
  std::vector<double> ready = {};  // of each bucket, from the start of backward()
  double backward = 0;
  double optimizer = 0;
};

/// One rank's models, all with the Spec's weights. `spec.batch` is a rank's part; rank r computes the r-th part of the
/// joined batch.
class RankTraining {
 public:
  RankTraining(const Spec& spec, tandem::parallel::ProcessGroup& group,
               const tandem::parallel::DistributedOptions& options);

  /// That many steps.
  void run(Way way, std::int64_t steps);
  /// Of one step.
  Course course();
  /// How large each bucket is.
  const std::vector<std::int64_t>& bucket_bytes() const noexcept { return bucket_bytes_; }
  /// How far the averaged gradients are from those of one device with the joined batch: the largest max|a - b| / max|b|
  /// of a parameter.
  double difference();

 private:
  struct Trainee {
    tandem::nn::Sequential model;
    std::unique_ptr<tandem::optim::Optimizer> optimizer;
  };
  using Wrapped = tandem::parallel::DistributedDataParallel<tandem::nn::Sequential>;

  static Trainee make_trainee(const Problem& joined);
  template <class Model>
  void backward(Trainee& trainee, Model& model, const tandem::Tensor& x, const tandem::Tensor& y);
  std::function<void()> on_bucket(const tandem::parallel::GradBucket& bucket);

  tandem::parallel::ProcessGroup& group_;
  Problem joined_;
  tandem::Tensor x_;  // this rank's part
  tandem::Tensor y_;
  Trainee plain_;
  Trainee averaged_;
  Trainee late_;
  Wrapped ddp_;
  Wrapped ddp_late_;
  std::vector<tandem::parallel::PlannedAllReduce> late_plans_;
  std::vector<std::int64_t> bucket_bytes_;
  Course* watched_ = nullptr;  // while ddp_late_ does not exchange
  double backward_began_ = 0;
};

}  // namespace bench::ddp
