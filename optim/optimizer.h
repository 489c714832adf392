#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/kernels/step_state.h>
#include <tandem/tensor/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::detail {
class Watched;
}
namespace tandem::inline v0::kernels {
struct Matmul;
}
namespace tandem::inline v0::autograd {
class Sharding;
class StepPartners;
}  // namespace tandem::inline v0::autograd

namespace tandem::inline v0::optim {

class GradScaler;

/// Tells state_dict() what to return where ranks share out the updates: all of the state, this rank's part, or nothing,
/// on a rank that only helps the others to all of it.
enum class StateParts : std::uint8_t { all, own, none };
/// The whole state, from every rank's state_dict(StateParts::own) in any order. Throws ConfigError if a part is
/// missing, twice there, or of another optimiser.
TANDEM_API StateDict join_state_parts(const std::vector<StateDict>& parts);

/// Parameters with options of their own. Omitted options are the optimiser's:
/// `optim::SGD sgd({{.params = body.parameters()}, {.params = head.parameters(), .lr = 0.1}}, {.lr = 0.01});`
struct ParamGroup {
  std::vector<Tensor> params;                         // the group's parameters
  std::optional<double> lr = std::nullopt;            // learning rate; default: the optimiser's
  std::optional<double> weight_decay = std::nullopt;  // weight decay; default: the optimiser's
};

/// A group of a running optimiser. Its options may be changed between steps; a change takes effect at the next step.
/// All other options belong to the optimiser and are fixed.
class TANDEM_API Group {
 public:
  /// The options that may differ between groups.
  struct Options {
    double lr;                                        // learning rate
    double weight_decay;                              // weight decay
    std::optional<double> momentum = std::nullopt;    // none: the optimiser has no momentum
    std::optional<double> initial_lr = std::nullopt;  // none: no schedule was made yet
  };

  /// Called by optimisers. `optimizer` is the name in messages.
  Group(const char* optimizer, std::vector<Tensor> params, const Options& options)
      : optimizer_(optimizer), params_(std::move(params)), options_(options) {}
  Group(const Group&) = default;
  Group& operator=(const Group&) = delete;  // the parameters are the optimiser's

  /// The group's parameters, as given.
  const std::vector<Tensor>& params() const noexcept { return params_; }

  /// Learning rate of the next step.
  double lr() const noexcept { return options_.lr; }
  /// Throws ConfigError unless `lr` is finite and >= 0.
  void set_lr(double lr);

  /// Weight decay of the next step.
  double weight_decay() const noexcept { return options_.weight_decay; }
  /// Throws ConfigError unless `weight_decay` is finite and >= 0.
  void set_weight_decay(double weight_decay);

  /// Momentum of SGD and RMSprop, the first beta of Adam and AdamW; empty for other optimisers.
  std::optional<double> momentum() const noexcept { return options_.momentum; }
  /// Throws ConfigError unless `momentum` is in [0, 1), and for a change that would switch momentum on or off: an
  /// optimiser without momentum keeps no buffer for it.
  void set_momentum(double momentum);

  /// The rate that schedules start from: the rate when the first schedule was made. Later schedules start from it too,
  /// although the first has already changed lr().
  double initial_lr() const noexcept { return options_.initial_lr.value_or(options_.lr); }
  /// Called by each schedule: the first call fixes the present rate as the initial one.
  void fix_initial_lr() noexcept { options_.initial_lr = initial_lr(); }

  /// All options at once.
  const Options& options() const noexcept { return options_; }
  /// Sets all options at once. Throws ConfigError like the single setters, and then nothing is changed.
  void set_options(const Options& options);
  /// Throws the errors of set_options() without setting anything.
  void check_options(const Options& options) const;

 private:
  const char* optimizer_;
  std::vector<Tensor> params_;
  Options options_;
};

/// Base of the optimisers. It takes leaves that require a gradient (others are skipped), packs them into a
/// ParameterStore, and updates each contiguous stretch in one pass. step() leaves a parameter without a gradient alone
/// and does not advance its step count. The module may be moved to another device or dtype afterwards.
/// Packing moves the parameters' elements once. Views, detach()ed handles and data pointers taken before keep the old
/// memory and do not follow the training: take them after the optimiser is built.
/// With the option `master_weights` the optimiser keeps an f32 copy, the master, of every bf16 or f16 parameter, and
/// keeps its other state for that parameter in f32 too. Steps update the master; the parameter is the rounded master.
/// The next step detects, element by element, a parameter that was changed in any other way (by load_state_dict of its
/// module, fill_, ...), and the master takes over the new value. The option has no effect on f32 and f64 parameters.
/// Belongs to one thread at a time.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;  // not movable either: schedulers refer to it
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient. For scaled gradients use GradScaler::step.
  void step();
  /// Clears the gradients; their memory is kept.
  void zero_grad();
  /// From now on (or no longer) step() looks at the gradients first: if one is infinite or NaN, nothing is updated and
  /// the step does not count, as with a GradScaler, which does this by itself. In a captured step too. Parameters on
  /// several devices are not looked at.
  void skip_nonfinite(bool on = true);
  /// Whether a step since skip_nonfinite() was left out. Waits for the device.
  bool found_nonfinite() const;

  /// The learning rate of the first group.
  double learning_rate() const noexcept { return groups_.front().lr(); }
  /// Sets the rate of every group from the next step on. Throws ConfigError unless it is finite and >= 0.
  void set_learning_rate(double learning_rate);
  /// The groups; a plain list of parameters forms one:
  /// `for (optim::Group& group : sgd.param_groups()) group.set_lr(0.1);`
  std::span<Group> param_groups() noexcept { return groups_; }
  std::span<const Group> param_groups() const noexcept { return groups_; }
  /// The parameters of all groups in order. A state names a parameter by its position here.
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  /// The bytes of the values that this rank keeps for the parameters: nothing before the first step.
  std::int64_t state_bytes() const;
  /// How often step() was called, by replays of a captured step as well.
  std::int64_t calls() const noexcept { return calls_; }
  /// The class of the optimiser in messages: "SGD".
  const char* name() const noexcept { return name_; }

  /// A copy of the values that carry over from step to step, under PyTorch's names. For each parameter that was ever
  /// stepped: "state.<parameter>.step" (i64), "state.<parameter>.exp_avg" and so on, and ".master" where there is one,
  /// all but ".step" of the parameter's shape. For each group: "param_groups.<group>.params" (indices, i64), ".lr",
  /// ".weight_decay", ".momentum" (Adam's first beta), ".initial_lr" (f64). Other options are not included: they belong
  /// to the program.
  /// Where a DistributedDataParallel shares out the updates (shard), the default is the whole state, on each rank: a
  /// collective. StateParts::own is this rank's part; join_state_parts() makes the whole of all ranks' parts.
  StateDict state_dict(StateParts parts = StateParts::all) const;
  /// The entries of state_dict() that are options: ".lr", ".weight_decay", ".momentum" and ".initial_lr" of each group.
  StateDict group_options() const;
  /// Continues from a state_dict() of all parts, to the bit. The groups must be the same. Device, floating point type
  /// and the number of ranks that share out the updates may differ. Missing masters start from their parameters. All
  /// problems come in one ConfigError, and then nothing is changed.
  void load_state_dict(const StateDict& state);

 protected:
  /// One stretch of memory whose members belong to one group and have taken the same number of steps.
  struct Slice {
    ParameterRun run;                          // the stretch
    kernels::StepState state;                  // rate and step count of this update
    std::vector<void*> buffers;                // kept values per element, in the order given at construction
    void* master;                              // f32, as the buffers then are; null without masters
    const Group* group;                        // group whose options apply
    const kernels::Matmul* product = nullptr;  // during an update that computes the gradients first: the product
  };
  /// A kind of value that is kept for each element of a parameter.
  struct BufferKind {
    std::string name;    // name in a state
    double initial = 0;  // initial value of each element
  };

  /// `options` apply to groups that leave theirs out, and must be valid except for the rate. Throws ConfigError for
  /// empty groups, repeated parameters, undefined tensors, results of ops and options out of range.
  Optimizer(const char* name, const std::vector<ParamGroup>& groups, const Group::Options& options,
            std::vector<BufferKind> buffers, bool master_weights);
  /// Updates one slice from its gradients.
  virtual void update(const Slice& slice) = 0;

  std::optional<double> second_momentum_;  // of Adam: its second beta
  bool fuses_products_ = false;            // update() heeds Slice::product

 private:
  friend class GradScaler;
  friend class LRScheduler;
  struct Member;
  class ProductScope;
  void cut();
  void prepare();
  // optimizer_parts.cpp: where ranks share out the updates.
  /// Drops the state of elements that other ranks update now. Throws ConfigError if a part that this rank updates now
  /// is not there.
  void take_parts();
  /// Gets the parameters' parts that other ranks have updated.
  void exchange_parts(autograd::Sharding& by);
  /// Lets all ranks know of a gradient that is not finite on one of them.
  void agree_on_inf(const Tensor& found_inf);
  /// The groups of ranks that share out the updates of parameters in slices.
  std::vector<autograd::Sharding*> sharings() const;
  /// The groups of ranks that make or leave out a step together with this one.
  std::vector<std::shared_ptr<autograd::StepPartners>> partners() const;
  void add_options(std::size_t group, StateDict& state) const;
  /// Returns a buffer's values for all of the member's parameter, on each rank, or for this rank's part alone.
  Tensor state_of(const Member& member, std::size_t buffer, StateParts parts) const;
  /// Whether a gradient that is left to the update shares its slice with others.
  bool has_mixed_slice() const;
  /// Computes the gradients that a captured step has left to the update. Throws AutogradError if an earlier update has
  /// taken one.
  void settle_gradients() const;
  void update_all();
  /// Warns of what works and is hardly meant: steps without new gradients, without zero_grad(), without some parameter.
  void look_for_mistakes();
  void warn_of_idle_parameters() const;
  /// Counts a step, in replays of a captured one as well.
  void count_call();
  void note_bytes() const;
  void note_streams() const;
  void* gather_buffer(const ParameterRun& run, std::size_t buffer);
  std::int64_t steps_of(const Member& member, std::int64_t skipped) const;
  bool has_master(DType dtype) const noexcept { return master_weights_ && item_size(dtype) == 2; }
  DType kept_dtype(DType dtype) const noexcept { return has_master(dtype) ? DType::f32 : dtype; }

  /// The device of all gradients, if they have one.
  std::optional<Device> device_of_gradients() const;
  // Used by GradScaler. `scale` is in the memory of `device`; null: the gradients are not scaled.
  void check_gradients(const char* call, Device device) const;
  void find_inf(Device device, const float* scale, const Tensor& found_inf, bool unscale);
  void finish_grad_scale(bool unscaled);
  kernels::GradScale* grad_scale() const noexcept;
  std::int64_t skipped_steps() const;
  void forget_skipped_steps();

  std::shared_ptr<detail::Watched> watched_;  // watched by captured steps
  const char* name_;
  std::vector<BufferKind> buffers_;  // masters, if any, come last
  bool master_weights_;
  Tensor grad_scale_;  // holds a kernels::GradScale once a GradScaler uses this optimiser
  Tensor nonfinite_;   // f32, with skip_nonfinite(): not 0 once a step was left out
  std::int64_t calls_ = 0;
  std::vector<Group> groups_;  // never resized: slices refer to its elements
  std::vector<Tensor> parameters_;
  std::vector<Member> members_;                 // in memory order from the first step on
  std::vector<std::unique_ptr<Slice>> slices_;  // kernels read slice->state, which must not move
};

}  // namespace tandem::inline v0::optim
