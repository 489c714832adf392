#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/core/error.h>
#include <tandem/core/export.h>
#include <tandem/data/loader.h>
#include <tandem/nn/module_ref.h>
#include <tandem/optim/ema.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/optimizer.h>
#include <tandem/telemetry/run_folder.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::checkpoint {

/// Options of a Run.
struct RunOptions {
  std::int64_t every = 500;  // steps between two checkpoints; 0: none but at the end, by signals and by save()
  int keep = 3;              // the newest checkpoints stay, this many of them
  /// Go on from the newest whole checkpoint in the folder. Without it the folder must be new or empty, unless the same
  /// job has made it before a restart (`tandem run --max-restarts`).
  bool resume = true;
  bool async_save = true;  // write in the background while the training goes on
  /// Each rank writes a part of the state, about as much as the others. All ranks must see the folder.
  bool sharded = false;
  /// SIGINT and SIGTERM let the current step finish, save, and throw Interrupted; the second of one kind ends the
  /// process at once. SIGUSR1 saves and goes on. Signals that the program handles or ignores stay as they are.
  bool signals = true;
  /// Stop before an update with gradients that are not finite (Optimizer::skip_nonfinite).
  bool stop_at_nonfinite = true;
  std::string program = {};  // names the folder if no path is given: runs/PROGRAM-TIME
};

/// Thrown by Run::step() on all ranks, after a signal and after its checkpoint was written.
class TANDEM_API Interrupted : public Error {
 public:
  Interrupted(int signal, const std::string& text) : Error(text), signal_(signal) {}
  /// The signal. Shells expect the exit code 128 + signal().
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

namespace detail {
template <class T>
concept HasState = requires(T& object, const StateDict& state) {
  { object.state_dict() } -> std::convertible_to<StateDict>;
  object.load_state_dict(state);
};

/// The name of a part of this type in a checkpoint.
template <class T>
constexpr const char* part_name() {
  if constexpr (std::derived_from<T, nn::ModuleRef>) {
    return "model";
  } else if constexpr (std::derived_from<T, optim::Optimizer>) {
    return "optimizer";
  } else if constexpr (std::derived_from<T, optim::LRScheduler> || std::derived_from<T, optim::ReduceLROnPlateau>) {
    return "schedule";
  } else if constexpr (std::derived_from<T, optim::GradScaler>) {
    return "scaler";
  } else if constexpr (std::derived_from<T, optim::EMA>) {
    return "ema";
  } else if constexpr (std::derived_from<T, data::DataLoader>) {
    return "loader";
  } else {
    return "state";
  }
}

template <class T>
const optim::EMA* average_in(const T& part) {
  if constexpr (std::derived_from<T, optim::EMA>) {
    return &part;
  } else {
    return nullptr;
  }
}

/// A part of the training state.
struct Part {
  std::string name;
  std::function<StateDict()> save;
  std::function<void(const StateDict& state)> load;
  bool per_rank = false;               // each rank has its own
  data::DataLoader* loader = nullptr;  // with another number of ranks, all go on from rank 0's place
  std::optional<nn::ModuleRef> module = std::nullopt;
  optim::Optimizer* optimizer = nullptr;
  const optim::EMA* average = nullptr;
  bool is_log = false;  // a list of numbers, to which ranks add alike
};
}  // namespace detail

/// A training run that survives its process. Checkpoints hold everything that the next steps depend on, so a run that
/// was interrupted anywhere ends with the bits of one that was not:
///
///     checkpoint::Run run("runs/digits");                    // a new folder, or one with checkpoints to go on from
///     run.track(model, adam, schedule, loader);              // restores them, if there is a checkpoint
///     for (const std::int64_t epoch : run.epochs(30)) {      // begins where the run stopped, within an epoch too
///       for (const auto& [x, y] : loader) {
///         adam.zero_grad();
///         Tensor loss = nn::cross_entropy(model(x), y);
///         loss.backward();
///         adam.step();
///         schedule.step();
///         run.step(loss);                                    // saves every 500 steps
///       }
///       run.log({{"epoch", epoch}, {"accuracy", evaluate(model)}});
///     }
///
/// If there is a default process group, all ranks make the Run and call it alike; rank 0 reads and writes the folder.
/// Models, optimisers, schedules, scalers and averages are then rank 0's, as DistributedDataParallel keeps them equal.
/// Loaders, random numbers and tracked numbers are each rank's own. With another number of ranks the rest of the epoch
/// is shared anew, rank 0 keeps its tracked numbers, and additional ranks begin with random numbers of their own.
///
/// Belongs to the thread that trains.
class TANDEM_API Run {
 public:
  /// Opens the folder `path`, or makes it; empty: a new one under runs/. A folder without a run must be empty. With a
  /// checkpoint there, restores the random numbers of current_generator(), and so do track() and epochs(). A damaged
  /// checkpoint is passed over with a warning, in favour of the one before. Throws IoError for a folder that cannot be
  /// used (another run uses it, or it has only damaged checkpoints) and ConfigError for options out of range. A
  /// collective.
  explicit Run(const std::string& path, const RunOptions& options = {});
  /// Waits for a checkpoint that is being written.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Adds modules, optimisers, schedules, scalers, averages, loaders and whatever else has state_dict() and
  /// load_state_dict(), and restores them from the checkpoint, if there is one. All must outlive the Run. Each kind has
  /// a name in the checkpoint, "model", "optimizer", "schedule", "scaler", "ema", "loader" or "state"; the second of a
  /// kind is "model2". Track in the same order each time, schedules after their optimisers. Throws the errors of
  /// load_state_dict(), and ConfigError for a part that the checkpoint lacks.
  template <class... Parts>
    requires(!std::convertible_to<Parts&, std::string_view> && ...)
  void track(Parts&... parts) {
    (add(free_name(detail::part_name<Parts>()), parts), ...);
  }
  /// Adds one part under a name of its own; also a std::int64_t, a double or a std::vector<double> that the loop adds
  /// up: `run.track("loss_sum", loss_sum)`.
  template <class Part>
  void track(const std::string& name, Part& part) {
    add(checked_name(name), part);
  }

  class Epochs;
  /// The epochs from the current one to `count` - 1, for a loop; tracking is over. Reaching the end saves the run.
  Epochs epochs(std::int64_t count);
  /// The epoch in which the run is, from 0.
  std::int64_t epoch() const noexcept { return epoch_; }
  /// The steps made, in all processes of the run.
  std::int64_t steps() const noexcept { return steps_; }
  /// Whether the run goes on from a checkpoint.
  bool is_resumed() const noexcept { return resumed_; }

  /// Call at the end of each step, on all ranks alike, also in a Join's finish(). Saves if it is time to. Throws
  /// ValueError, on all ranks in the same step, if a gradient was not finite: its optimiser has not made that step. On
  /// GPUs this is noticed within a tenth of a second. Optimisers with parameters on several devices are not looked at.
  /// Throws Interrupted after a signal. A checkpoint that cannot be written, as on a full disk, is a warning. On rank 0
  /// also throws ConfigError if another process has taken the folder over.
  void step();
  /// As step(); also throws ValueError if `loss`, a number on the CPU, is not finite.
  void step(const Tensor& loss);
  /// Writes a checkpoint now, and waits until it is on the disk. At the end of an epoch's body, when the first tracked
  /// loader has no more batches, the checkpoint is that of the next epoch's beginning, and is written there. Throws
  /// IoError if that fails. A collective.
  void save();

  /// Appends a line to metrics.jsonl, on rank 0. A resumed run cuts lines off that came after its checkpoint, so that
  /// each is there once.
  void log(const telemetry::Fields& fields);
  /// The run's folder, on rank 0; elsewhere null.
  telemetry::RunFolder* folder() noexcept;

 private:
  struct Impl;
  struct Wishes;

  std::string free_name(const char* kind) const;
  const std::string& checked_name(const std::string& name) const;
  void add(detail::Part part);
  void add(const std::string& name, nn::ModuleRef& module);
  void add(const std::string& name, optim::Optimizer& optimizer);
  void add(const std::string& name, data::DataLoader& loader);
  void add(const std::string& name, std::int64_t& number);
  void add(const std::string& name, double& number);
  void add(const std::string& name, std::vector<double>& numbers);
  template <class Other>
  void add(const std::string& name, Other& other) {
    if constexpr (std::derived_from<Other, nn::ModuleRef>) {
      add(name, static_cast<nn::ModuleRef&>(other));
    } else if constexpr (std::derived_from<Other, optim::Optimizer>) {
      add(name, static_cast<optim::Optimizer&>(other));
    } else {
      static_assert(detail::HasState<Other>,
                    "Run::track: this has no state_dict() and load_state_dict(); of a DistributedDataParallel or "
                    "DataParallel track the module itself");
      add(detail::Part{.name = name,
                       .save = [&other] { return other.state_dict(); },
                       .load = [&other](const StateDict& state) { other.load_state_dict(state); },
                       .average = detail::average_in(other)});
    }
  }
  bool is_past_epoch(const StateDict& loader) const;
  void note();
  void after_step();
  void answer(const Wishes& wishes, bool is_due);
  void next_epoch();
  bool is_over(std::int64_t epochs);

  std::int64_t epoch_ = 0;
  std::int64_t steps_ = 0;
  bool resumed_ = false;
  std::unique_ptr<Impl> impl_;
};

/// The range of a loop over epochs.
class Run::Epochs {
 public:
  /// Goes through the epochs. Belongs to the Run.
  class Iterator {
   public:
    /// The element type of the loop: the number of an epoch.
    using value_type = std::int64_t;
    /// Required of iterators.
    using difference_type = std::ptrdiff_t;
    /// The current epoch.
    std::int64_t operator*() const noexcept { return run_->epoch(); }
    /// Goes to the next epoch.
    Iterator& operator++() {
      run_->next_epoch();
      return *this;
    }
    /// The same.
    void operator++(int) { ++*this; }
    /// Whether the last epoch is over; saves the run then.
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.is_over(); }

   private:
    friend class Epochs;
    Iterator(Run* run, std::int64_t count) : run_(run), count_(count) {}
    bool is_over() const { return run_->is_over(count_); }
    Run* run_;
    std::int64_t count_;
  };

  /// The current epoch.
  Iterator begin() const { return {run_, count_}; }
  /// The end of the last epoch.
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class Run;
  Epochs(Run* run, std::int64_t count) : run_(run), count_(count) {}
  Run* run_;
  std::int64_t count_;
};

}  // namespace tandem::inline v0::checkpoint
