#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tandem/graph/capture.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>

#include "step/model.h"

namespace bench::ddp {

/// A way to run a step. The first two run on rank 0 alone while the other ranks wait.
enum class Way : std::uint8_t {
  one_rank,     // rank 0 with the joined batch
  one_part,     // rank 0 with one rank's part of the batch
  no_exchange,  // every rank its part, without averaging
  ddp,
  no_overlap,            // the same buckets, all sent after the backward pass
  shard,                 // the ranks share out the updates,
  shard_gradients,       // the gradients, too,
  shard_parameters,      // and the parameters
  captured_no_exchange,  // as no_exchange, ddp and shard, in captured steps
  captured_ddp,
  captured_shard
};
inline constexpr std::size_t kWays = 11;
/// The name of a way: "one rank", ...
const char* name_of(Way way);

/// Times within a step without exchange, in seconds. They show which parts an exchange could overlap with.
struct Course {
  double forward = 0;              // until the start of backward()
  std::vector<double> ready = {};  // for each bucket, counted from the start of backward()
  double backward = 0;
  double optimizer = 0;
};

/// The models of one rank, all with the Spec's weights. `spec.batch` is the batch of one rank. Rank r computes the r-th
/// part of the joined batch.
class RankTraining {
 public:
  RankTraining(const Spec& spec, tandem::parallel::ProcessGroup& group,
               const tandem::parallel::DistributedOptions& options);

  /// Takes that many steps.
  void run(Way way, std::int64_t steps);
  /// Runs one step and returns its times.
  Course course();
  /// The size of each bucket in bytes.
  const std::vector<std::int64_t>& bucket_bytes() const noexcept { return bucket_bytes_; }
  /// Difference between the averaged gradients and those of one device with the joined batch: the largest max|a - b| /
  /// max|b| over the parameters.
  double difference();

 private:
  struct Trainee {
    tandem::nn::Sequential model;
    std::unique_ptr<tandem::optim::Optimizer> optimizer;
  };
  using Wrapped = tandem::parallel::DistributedDataParallel<tandem::nn::Sequential>;

  static Trainee make_trainee(const Problem& joined);
  using Step = tandem::graph::CapturedStep<std::function<void(tandem::Tensor, tandem::Tensor)>>;
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
  Trainee sharded_;
  Trainee sharded_gradients_;
  Trainee sharded_parameters_;
  Wrapped ddp_;
  Wrapped ddp_late_;
  Wrapped ddp_sharded_;
  Wrapped ddp_sharded_gradients_;
  Wrapped ddp_sharded_parameters_;
  Step captured_plain_;
  Step captured_averaged_;
  Step captured_sharded_;
  std::vector<tandem::parallel::PlannedCollective> late_plans_;
  std::vector<std::int64_t> bucket_bytes_;
  Course* watched_ = nullptr;  // set while ddp_late_ does not exchange
  double backward_began_ = 0;
};

}  // namespace bench::ddp
