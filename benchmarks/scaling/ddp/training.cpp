#include "scaling/ddp/training.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <tandem/core/thread_state.h>
#include <tandem/tandem.h>

#include "step/clock.h"

namespace bench::ddp {

using namespace tandem;

const char* name_of(Way way) {
  switch (way) {
    case Way::one_rank: return "one rank";
    case Way::one_part: return "one rank's part";
    case Way::no_exchange: return "no exchange";
    case Way::ddp: return "ddp";
    case Way::no_overlap: return "ddp, no overlap";
    case Way::shard: return "ddp, shard";
    case Way::shard_gradients: return "ddp, gradients too";
    case Way::shard_parameters: return "ddp, parameters too";
    case Way::captured_no_exchange: return "captured, no exchange";
    case Way::captured_ddp: return "captured ddp";
    case Way::captured_shard: return "captured ddp, shard";
  }
  return "";
}

namespace {

Problem joined_problem(Spec spec, int ranks) {
  spec.batch *= ranks;
  Problem problem = make_problem(spec);
  const auto move = [](Tensor& tensor) { tensor = tensor.to(core::thread_state().device); };
  move(problem.x);
  move(problem.y);
  std::ranges::for_each(problem.weights, move);
  std::ranges::for_each(problem.biases, move);
  return problem;
}

parallel::DistributedOptions with_shard(parallel::DistributedOptions options, parallel::Shard shard) {
  options.shard = shard;
  return options;
}

}  // namespace

RankTraining::Trainee RankTraining::make_trainee(const Problem& joined) {
  Trainee trainee{.model = make_model(joined), .optimizer = nullptr};
  trainee.optimizer = make_optimizer(joined.spec, trainee.model.parameters());
  return trainee;
}

RankTraining::RankTraining(const Spec& spec, parallel::ProcessGroup& group, const parallel::DistributedOptions& options)
    : group_(group),
      joined_(joined_problem(spec, group.size())),
      x_(joined_.x.narrow(0, group.rank() * spec.batch, spec.batch).clone()),
      y_(joined_.y.narrow(0, group.rank() * spec.batch, spec.batch).clone()),
      plain_(make_trainee(joined_)),
      averaged_(make_trainee(joined_)),
      late_(make_trainee(joined_)),
      sharded_(make_trainee(joined_)),
      sharded_gradients_(make_trainee(joined_)),
      sharded_parameters_(make_trainee(joined_)),
      ddp_(averaged_.model, options),
      ddp_late_(late_.model, options),
      ddp_sharded_(sharded_.model, with_shard(options, parallel::Shard::optimizer)),
      ddp_sharded_gradients_(sharded_gradients_.model, with_shard(options, parallel::Shard::gradients)),
      ddp_sharded_parameters_(sharded_parameters_.model, with_shard(options, parallel::Shard::parameters)),
      captured_plain_([this](const Tensor& x, const Tensor& y) {
        backward(plain_, plain_.model, x, y);
        plain_.optimizer->step();
      }),
      captured_averaged_([this](const Tensor& x, const Tensor& y) {
        backward(averaged_, ddp_, x, y);
        averaged_.optimizer->step();
      }),
      captured_sharded_([this](const Tensor& x, const Tensor& y) {
        backward(sharded_, ddp_sharded_, x, y);
        sharded_.optimizer->step();
      }) {
  ddp_late_.register_comm_hook(
      [this](parallel::ProcessGroup&, const parallel::GradBucket& bucket) { return on_bucket(bucket); });
  course();  // determines the sizes of the buckets
}

std::function<void()> RankTraining::on_bucket(const parallel::GradBucket& bucket) {
  if (watched_ != nullptr) {
    watched_->ready.push_back(now(false) - backward_began_);
    if (bucket_bytes_.size() < bucket.count) {
      bucket_bytes_.push_back(bucket.gradients.numel() * static_cast<std::int64_t>(sizeof(float)));
    }
    return {};
  }
  return [this, bucket] {
    if (late_plans_.size() <= bucket.index) {
      late_plans_.push_back(group_.plan_all_reduce(bucket.gradients.raw(), parallel::ReduceOp::avg));
    }
    late_plans_[bucket.index].run();
  };
}

template <class Model>
void RankTraining::backward(Trainee& trainee, Model& model, const Tensor& x, const Tensor& y) {
  trainee.optimizer->zero_grad();
  const Tensor loss = loss_of(joined_.spec.loss, model(x), y);
  backward_began_ = now(false);
  loss.backward();
}

void RankTraining::run(Way way, std::int64_t steps) {
  if (group_.rank() != 0 && (way == Way::one_rank || way == Way::one_part)) {
    return;
  }
  if (way >= Way::captured_no_exchange) {
    Step& step = way == Way::captured_ddp     ? captured_averaged_
                 : way == Way::captured_shard ? captured_sharded_
                                              : captured_plain_;
    for (std::int64_t i = 0; i < steps; ++i) {
      step(x_, y_);
    }
    return;
  }
  for (std::int64_t i = 0; i < steps; ++i) {
    Trainee& trainee = way == Way::ddp                ? averaged_
                       : way == Way::no_overlap       ? late_
                       : way == Way::shard            ? sharded_
                       : way == Way::shard_gradients  ? sharded_gradients_
                       : way == Way::shard_parameters ? sharded_parameters_
                                                      : plain_;
    switch (way) {
      case Way::one_rank: backward(trainee, trainee.model, joined_.x, joined_.y); break;
      case Way::one_part:
      case Way::no_exchange: backward(trainee, trainee.model, x_, y_); break;
      case Way::ddp: backward(trainee, ddp_, x_, y_); break;
      case Way::no_overlap: backward(trainee, ddp_late_, x_, y_); break;
      case Way::shard: backward(trainee, ddp_sharded_, x_, y_); break;
      case Way::shard_gradients: backward(trainee, ddp_sharded_gradients_, x_, y_); break;
      case Way::shard_parameters: backward(trainee, ddp_sharded_parameters_, x_, y_); break;
      default: break;
    }
    trainee.optimizer->step();
  }
}

Course RankTraining::course() {
  Course course;
  watched_ = &course;
  const double start = now(false);
  backward(late_, ddp_late_, x_, y_);
  const double end = now(false);
  late_.optimizer->step();
  course.optimizer = now(false) - end;
  course.forward = backward_began_ - start;
  course.backward = end - backward_began_;
  watched_ = nullptr;
  return course;
}

double RankTraining::difference() {
  backward(plain_, plain_.model, joined_.x, joined_.y);
  backward(averaged_, ddp_, x_, y_);
  const std::vector<Tensor> expected = plain_.model.parameters();
  const std::vector<Tensor> found = averaged_.model.parameters();
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double scale = expected[i].grad().abs().max().item();
    const double apart = (expected[i].grad() - found[i].grad()).abs().max().item();
    worst = std::max(worst, scale > 0 ? apart / scale : apart);
  }
  return worst;
}

}  // namespace bench::ddp
