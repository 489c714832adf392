#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/nn/summary.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/joined_gradients.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/partner_totals.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/same_lines.h>
#include <tandem/parallel/pipeline/engine.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/recorder.h>

// A pipeline over ranks. Each rank computes one stage, in the order that the schedule gives, and exchanges activations
// and their gradients with the ranks of the stages before and behind. Sends run on the group's thread; a receive waits
// until its message is there.

namespace tandem::inline v0::parallel::detail {

namespace {

constexpr int kTag = 0x9173;  // of all messages, unlikely to be one of the program's own

// A head describes a message. It goes ahead of an activation, whose receiver cannot know its shape.
class Head {
 public:
  enum class Purpose : std::uint8_t { step, output };

  // Describes `content`, which belongs to the work on a batch of `rows`.
  Head(Purpose purpose, std::int64_t rows, const Tensor& content) : values_(zeros({kSize}, on_cpu(DType::i64))) {
    const std::span<std::int64_t> values = this->values();
    values[0] = static_cast<std::int64_t>(purpose);
    values[1] = rows;
    values[2] = static_cast<std::int64_t>(content.dtype());
    values[3] = content.dim();
    for (int d = 0; d < content.dim(); ++d) {
      values[static_cast<std::size_t>(kSizes + d)] = content.size(d);
    }
  }
  Head() : values_(zeros({kSize}, on_cpu(DType::i64))) {}

  const Tensor& tensor() const { return values_; }
  std::int64_t rows() const { return values()[1]; }
  Purpose purpose() const { return static_cast<Purpose>(values()[0]); }
  // Memory for the content.
  Tensor place(Device device) const {
    const std::span<const std::int64_t> sizes = values().subspan(kSizes, static_cast<std::size_t>(values()[3]));
    return empty(Shape(std::vector<std::int64_t>(sizes.begin(), sizes.end())),
                 {.dtype = static_cast<DType>(values()[2]), .device = device});
  }

 private:
  static constexpr int kSizes = 4;
  static constexpr int kSize = kSizes + kMaxDims;

  std::span<std::int64_t> values() const {
    return {static_cast<std::int64_t*>(values_.raw().data()), static_cast<std::size_t>(kSize)};
  }
  Tensor values_;
};

const char* to_text(Head::Purpose purpose) { return purpose == Head::Purpose::step ? "step()" : "pipeline(x)"; }

// Throws ConfigError on all ranks. This comparison goes before all other checks, so that no rank waits for one that has
// refused its arguments.
void check_same_everywhere(const nn::Sequential& model, ProcessGroup& group, const PipelineOptions& options) {
  std::vector<std::string> lines = nn::layer_lines(model);
  for (const auto& [name, parameter] : model.named_parameters()) {
    lines.push_back(fmt::format("parameter '{}': {} {}{}", name, parameter.dtype(), parameter.shape(),
                                parameter.requires_grad() ? "" : ", frozen"));
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    lines.push_back(fmt::format("buffer '{}': {} {}", name, buffer.dtype(), buffer.shape()));
  }
  check_same(group, "Pipeline", lines, "models", "All ranks must build the same model");
  check_same(group, "Pipeline",
             {fmt::format("microbatches = {}, schedule = {}, split = [{}], average_over = {}", options.microbatches,
                          options.schedule == Schedule::gpipe ? "gpipe" : "one_f_one_b", fmt::join(options.split, ", "),
                          options.average_over == nullptr ? "none" : "a group")},
             "options", "All ranks must pass the same options; let rank 0 measure a split for all");
  if (options.average_over != nullptr) {
    check_same(*options.average_over, "Pipeline", {fmt::format("stage {} of {}", group.rank(), group.size())}, "stages",
               "average_over is the group of the ranks that have the same stage: another axis of the mesh");
  }
}

class RankPipeline final : public PipelineEngine {
 public:
  RankPipeline(nn::Sequential& model, ProcessGroup& group, const PipelineOptions& options)
      : PipelineEngine(model, static_cast<std::size_t>(group.size()), options),
        group_(group),
        stages_(make_stages(
            std::vector<Device>(static_cast<std::size_t>(group.size()), core::thread_state().device),
            [&](std::size_t s) { return fmt::format("rank {}", group.queue()->names()->rank(static_cast<int>(s))); })),
        queue_(group.queue()),
        own_(*stages_[static_cast<std::size_t>(group.rank())]) {
    own_.move_layers();
    if (group.size() > 1) {
      first_steps_.emplace(&group);
    }
    const NoGradGuard no_grad;
    if (options.average_over != nullptr) {
      for (const Tensor& tensor : own_.state()) {
        options.average_over->broadcast(tensor, 0);
      }
    }
    for (const TiedParameter& tied : find_tied(stages_)) {
      std::vector<int> ranks(tied.stages.begin(), tied.stages.end());
      std::unique_ptr<ProcessGroup> sharers = group.new_group(ranks);
      if (sharers != nullptr) {
        sharers->broadcast(tied.parameter, 0);
        tied_.push_back({.parameter = tied.parameter,
                         .sharers = std::move(sharers),
                         .is_trained = tied.parameter.requires_grad(),
                         .is_counted_here = own_.number() == tied.stages.front()});
      }
    }
  }

  Tensor run(const PipelineStep& step) override {
    check<CaptureError>(tandem::detail::step_recorder() == nullptr,
                        "Pipeline: a step of a pipeline over ranks cannot be captured; call step() outside of "
                        "graph::capture, or make the pipeline over devices of one process");
    return ending_the_groups_on_errors([&] {
      const Bound bound(stages_);
      if (options().average_over != nullptr) {
        const NoGradGuard no_grad;
        for (const Tensor& buffer : own_.buffers()) {
          options().average_over->broadcast(buffer, 0);
        }
      }
      for (Shared& shared : tied_) {
        check<ConfigError>(
            shared.parameter.requires_grad() == shared.is_trained,
            "Pipeline: parameter '{}', which several stages have, was frozen or thawed since the pipeline "
            "was made; make a new one on all ranks",
            autograd::parameter_name(shared.parameter));
        shared.copy = shared.parameter.detach().requires_grad_(shared.is_trained);
        own_.bind(shared.parameter, shared.copy);
      }
      const std::vector<Tensor> losses = run_stage(step);
      for (Shared& shared : tied_) {
        add_up(shared);
        shared.copy = {};
      }
      if (options().average_over != nullptr) {
        all_reduce_gradients(own_.parameters(), *options().average_over);
      }
      return finish(losses);
    });
  }

  Tensor forward(const Tensor& x) override {
    return ending_the_groups_on_errors([&] {
      const NoGradGuard no_grad;
      const std::int64_t rows = x.dim() > 0 ? x.size(0) : 0;
      const int last = group_.size() - 1;
      Tensor output = own_.apply(own_.is_first() ? x : receive_input(Head::Purpose::output, rows));
      if (own_.is_last()) {
        group_.broadcast(Head(Head::Purpose::output, rows, output).tensor(), last);
      } else {
        send(Head::Purpose::output, rows, output);
        const Head head;
        group_.broadcast(head.tensor(), last);
        output = head.place(own_.device());
      }
      wait_for_sends();
      group_.broadcast(output, last);
      return output;
    });
  }

  std::vector<Tensor> parameters() const override { return own_.parameters(); }

  double squared_norm() override {
    check_open();
    std::vector<Tensor> counted = own_.parameters();
    std::erase_if(counted, [&](const Tensor& parameter) {
      const auto shared = std::ranges::find_if(
          tied_, [&](const Shared& s) { return s.parameter.unresolved() == parameter.unresolved(); });
      return shared != tied_.end() && !shared->is_counted_here;
    });
    const Tensor total = full({1}, squared_norm_of(counted), on_cpu(DType::f64));
    group_.all_reduce(total);
    return total.item();
  }

  void gather_parameters() override {
    check_open();
    const NoGradGuard no_grad;
    std::vector<const tandem::detail::TensorImpl*> done;  // a tied one is its first stage's
    for (const std::unique_ptr<Stage>& stage : stages_) {
      for (Tensor& tensor : stage->state()) {
        if (std::ranges::find(done, tensor.unresolved()) != done.end()) {
          continue;
        }
        done.push_back(tensor.unresolved());
        const Tensor there = tensor.to(own_.device());
        group_.broadcast(there, static_cast<int>(stage->number()));
        if (!(tensor.device() == there.device())) {
          tensor.copy_(there);
        }
      }
    }
  }

  std::vector<StageTimes> times() override {
    check_open();
    const StageTimes& own = own_.times();
    const Tensor mine = from_data(std::vector<double>{static_cast<double>(own.passes), own.forward, own.backward,
                                                      static_cast<double>(own.most_in_flight)});
    const Tensor all = zeros({group_.size(), mine.size(0)}, on_cpu(DType::f64));
    group_.all_gather_into_tensor(all, mine.to(Device(DeviceType::cpu, 0)));
    std::vector<StageTimes> times;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<double> of = all[static_cast<std::int64_t>(s)].to_vector<double>();
      times.push_back({.name = stages_[s]->name(),
                       .passes = static_cast<std::int64_t>(of[0]),
                       .forward = of[1],
                       .backward = of[2],
                       .most_in_flight = static_cast<std::size_t>(of[3])});
    }
    return times;
  }

  void forget_times() override { own_.forget_times(); }
  bool is_here() const noexcept override { return false; }

 private:
  // A parameter that stages of other ranks have, too.
  struct Shared {
    Tensor parameter;
    std::unique_ptr<ProcessGroup> sharers;
    bool is_trained;
    bool is_counted_here;  // in a norm over all stages
    Tensor copy{};         // computes the present step
  };

  void check_open() const {
    check<ConfigError>(!queue_->is_closed(),
                       "Pipeline: its process group is gone; keep it for as long as the pipeline is used");
  }

  // Other ranks wait for what this one would have sent.
  template <class Body>
  Tensor ending_the_groups_on_errors(const Body& body) {
    check_open();
    try {
      return body();
    } catch (const std::exception& error) {
      end_groups(error.what());
      throw;
    } catch (...) {
      end_groups("what was thrown is not a std::exception");
      throw;
    }
  }

  void end_groups(const char* error) {
    own_.give_up();
    sends_.clear();
    const std::string reason = fmt::format("{}: {}", own_.name(), error);
    group_.abort(reason);
    for (const Shared& shared : tied_) {
      shared.sharers->abort(reason);
    }
    if (partner_group_ != nullptr) {
      partner_group_->abort(reason);
    }
    if (options().average_over != nullptr) {
      options().average_over->abort(reason);
    }
  }

  std::vector<Tensor> run_stage(const PipelineStep& step) {
    const std::size_t count = step.batches.size();
    std::int64_t rows = 0;
    for (const MicroBatch& batch : step.batches) {
      rows += batch.x.size(0);
    }
    own_.begin(count, current_generator());
    std::vector<Tensor> losses;
    for (const auto& [is_backward, m] : actions(own_.number(), step)) {
      try {
        if (!is_backward) {
          const Tensor input = own_.is_first() ? step.batches[m].x : receive_input(Head::Purpose::step, rows);
          const Tensor output = own_.forward(m, input, step);
          own_.is_last() ? losses.push_back(output) : send(Head::Purpose::step, rows, output);
        } else if (const Tensor gradient = own_.backward(m, own_.is_last() ? Tensor() : receive_gradient(m));
                   gradient.defined()) {
          sends_.push_back(group_.isend(gradient, static_cast<int>(own_.number()) - 1, kTag));
        }
      } catch (Error& error) {
        error.add_context(fmt::format("in {}, micro-batch {} of {}", own_.name(), m, count));
        throw;
      }
    }
    wait_for_sends();
    return losses;
  }

  Tensor receive_input(Head::Purpose purpose, std::int64_t rows) {
    const int from = static_cast<int>(own_.number()) - 1;
    const Head head;
    group_.recv(head.tensor(), from, kTag);
    check<ConfigError>(
        head.purpose() == purpose && head.rows() == rows,
        "Pipeline: {} called {} with {} rows, and this rank {} with {}; all ranks must make the same calls, "
        "with batches of as many rows [TDM-E616]",
        stages_[static_cast<std::size_t>(from)]->name(), to_text(head.purpose()), head.rows(), to_text(purpose), rows);
    Tensor input = head.place(own_.device());
    group_.recv(input, from, kTag);
    return input;
  }

  Tensor receive_gradient(std::size_t microbatch) {
    Tensor gradient = empty_like(own_.output(microbatch).detach());
    group_.recv(gradient, static_cast<int>(own_.number()) + 1, kTag);
    return gradient;
  }

  void send(Head::Purpose purpose, std::int64_t rows, const Tensor& output) {
    const int to = static_cast<int>(own_.number()) + 1;
    sends_.push_back(group_.isend(Head(purpose, rows, output).tensor(), to, kTag));
    sends_.push_back(group_.isend(output, to, kTag));
  }

  void wait_for_sends() {
    for (Work& sent : sends_) {
      sent.wait();
    }
    sends_.clear();
  }

  // All stages get the sum of the gradients of this step.
  static void add_up(const Shared& shared) {
    if (shared.copy.requires_grad()) {
      Tensor gradient = shared.copy.grad();
      gradient = gradient.defined() ? gradient : zeros_like(shared.copy.detach());
      shared.sharers->all_reduce(gradient);
      shared.parameter.backward(gradient);
    }
  }

  // Lets all ranks know the loss, and which of them have gradients. Each rank adds its own values to zeros.
  Tensor finish(const std::vector<Tensor>& losses) {
    const Tensor loss = own_.is_last() ? sum_of(losses) : Tensor();
    const Tensor shared = zeros({2 + group_.size()}, on_cpu(DType::f64));
    auto* const own = static_cast<double*>(shared.raw().data());
    if (loss.defined()) {
      own[0] = loss.item();
      own[1] = static_cast<double>(loss.dtype());
    }
    own[2 + own_.number()] = has_gradients() ? 1 : 0;
    group_.all_reduce(shared);
    const std::vector<double> values = shared.to_vector<double>();
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (values[static_cast<std::size_t>(2 + rank)] != 0) {
        ranks.push_back(rank);
      }
    }
    join_partners(ranks);
    return loss.defined() ? loss
                          : full({}, values[0], {.dtype = static_cast<DType>(values[1]), .device = own_.device()});
  }

  bool has_gradients() const {
    return std::ranges::any_of(own_.parameters(), [](const Tensor& parameter) {
      const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
      return leaf != nullptr && leaf->fresh();
    });
  }

  // The optimisers of these ranks, which have gradients, make or leave out a step together. A rank whose layers are
  // frozen makes no step, and nobody may wait for it.
  void join_partners(const std::vector<int>& ranks) {
    if (ranks != partner_ranks_) {
      partners_.reset();
      partner_group_.reset();
      const bool are_all = static_cast<int>(ranks.size()) == group_.size();
      if (ranks.size() > 1 && !are_all) {
        partner_group_ = group_.new_group(ranks);
      }
      if (ProcessGroup* const together = are_all ? &group_ : partner_group_.get(); together != nullptr) {
        partners_ = std::make_shared<PartnerTotals>(*together, std::vector<Device>{own_.device()}, "Pipeline");
      }
      partner_ranks_ = ranks;
    }
    for (const Tensor& parameter : own_.parameters()) {
      if (autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved()); leaf != nullptr) {
        leaf->partners.set(autograd::PartnerKind::pipeline, partners_);
      }
    }
  }

  ProcessGroup& group_;
  std::vector<std::unique_ptr<Stage>> stages_;  // of all ranks
  std::shared_ptr<CommQueue> queue_;
  Stage& own_;
  std::vector<Shared> tied_;
  std::vector<Work> sends_;
  std::vector<int> partner_ranks_;
  std::unique_ptr<ProcessGroup> partner_group_;  // null if all ranks are partners, or this one has none
  std::shared_ptr<PartnerTotals> partners_;
};

}  // namespace

std::unique_ptr<PipelineEngine> pipeline_of_ranks(nn::Sequential& model, ProcessGroup& group,
                                                  const PipelineOptions& options) {
  check_same_everywhere(model, group, options);
  check_not_elastic("Pipeline", "its stage");
  return std::make_unique<RankPipeline>(model, group, options);
}

}  // namespace tandem::inline v0::parallel::detail
