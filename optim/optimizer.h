#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/kernels/step_state.h>
#include <tandem/optim/param_group.h>
#include <tandem/tensor/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::detail {
class Watched;
}

namespace tandem::inline v0::optim {

class GradScaler;

/// Base of the optimisers. Takes leaves that require a gradient (others are passed over), packs them into a
/// ParameterStore, and updates whole stretches of it in one pass each. A parameter without a gradient is left alone by
/// step(), and its step count does not move. Moving the module to another device or dtype afterwards is fine.
/// Packing moves the parameters' elements, once: views, detach()ed handles and data pointers that were taken before
/// keep the old memory and do not follow the training. Take them after the optimiser is built.
/// With the option `master_weights` it keeps an f32 copy of every bf16 or f16 parameter, the master, and all else it
/// keeps of them in f32 too: masters are updated, parameters are their rounding. A parameter that was changed otherwise
/// (by load_state_dict of its module, fill_, ...) is not, which the next step sees element by element: the master takes
/// the new value over. To f32 and f64 parameters the option makes no difference.
/// One thread at a time.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;  // nor moves: schedulers refer to it
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient. Of scaled gradients see GradScaler::step.
  void step();
  /// Forgets the gradients; their memory is kept.
  void zero_grad();

  /// Of the first group.
  double learning_rate() const noexcept { return groups_.front().lr(); }
  /// Of every group; takes effect at the next step. Throws ConfigError unless finite and >= 0.
  void set_learning_rate(double learning_rate);
  /// One for a plain list of parameters. `for (optim::Group& group : sgd.param_groups()) group.set_lr(0.1);`
  std::span<Group> param_groups() noexcept { return groups_; }
  std::span<const Group> param_groups() const noexcept { return groups_; }
  /// Those of all groups, one after the other; a position here is the index by which a state names a parameter.
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  /// "SGD"
  const char* name() const noexcept { return name_; }

  /// A copy of what goes on from step to step, with PyTorch's names: "state.<parameter>.step" (i64),
  /// "state.<parameter>.exp_avg" and so on, with masters ".master" (shape of the parameter; nothing for one that has
  /// never been stepped), and for each group "param_groups.<group>.params" (indices, i64), ".lr", ".weight_decay",
  /// ".momentum" (Adam's first beta),
  /// ".initial_lr" (f64). Other options are not in it: they belong to the program.
  StateDict state_dict() const;
  /// Goes on where that left off, to the bit. The groups must be the same; device and floating point type may differ,
  /// and masters that are missing begin as their parameters.
  /// All problems come in one ConfigError, and nothing is changed then.
  void load_state_dict(const StateDict& state);

 protected:
  /// One stretch of memory whose members belong to one group and have taken the same number of steps.
  struct Slice {
    ParameterRun run;            // the stretch
    kernels::StepState state;    // rate and step count of this update
    std::vector<void*> buffers;  // what the optimiser keeps per element, in the order given at construction
    void* master;                // in f32, and so are the buffers then; null without
    const Group* group;          // whose options hold
  };
  /// Something kept for each element of a parameter.
  struct BufferKind {
    std::string name;    // in a state
    double initial = 0;  // what each element starts from
  };

  /// `options` are those of groups that have none of their own, and valid but for the rate. Throws ConfigError for
  /// empty groups, a parameter that comes twice, undefined tensors, results of ops, options out of range.
  Optimizer(const char* name, const std::vector<ParamGroup>& groups, const Group::Options& options,
            std::vector<BufferKind> buffers, bool master_weights);
  /// Updates one stretch from its gradients.
  virtual void update(const Slice& slice) = 0;

 private:
  friend class GradScaler;
  struct Member;
  bool layout_changed() const;
  void cut();
  void prepare();
  void update_all();
  void note_streams() const;
  void* gather_buffer(const ParameterRun& run, std::size_t buffer);
  std::int64_t steps_of(const Member& member, std::int64_t skipped) const;
  bool has_master(DType dtype) const noexcept { return master_weights_ && item_size(dtype) == 2; }
  DType kept_dtype(DType dtype) const noexcept { return has_master(dtype) ? DType::f32 : dtype; }

  // For GradScaler.
  void check_gradients(const char* call, Device device) const;
  void find_inf(const Tensor& scale, const Tensor& found_inf, bool unscale);
  void finish_grad_scale(bool unscaled);
  kernels::GradScale* grad_scale() const noexcept;
  std::int64_t skipped_steps() const;
  void forget_skipped_steps();

  std::shared_ptr<detail::Watched> watched_;  // by captured steps
  const char* name_;
  std::vector<BufferKind> buffers_;  // the last are masters if there are any
  bool master_weights_;
  Tensor grad_scale_;          // a kernels::GradScale, once a GradScaler works with this
  std::vector<Group> groups_;  // never resized: slices refer to its elements
  std::vector<Tensor> parameters_;
  std::vector<Member> members_;                 // in the order of memory
  std::vector<std::unique_ptr<Slice>> slices_;  // kernels read slice->state: it must stay where it is
};

}  // namespace tandem::inline v0::optim
