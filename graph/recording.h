#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/core/fork.h>
#include <tandem/core/thread_state.h>
#include <tandem/graph/trace.h>
#include <tandem/kernels/launch.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/recorder.h>
#include <tandem/tensor/storage.h>

// Internal: one run of a step, observed at the level of launches and allocations.

namespace tandem::inline v0::graph {

/// The modules that were called, each once. Copies of their scopes live here at fixed addresses.
class ModuleNames {
 public:
  /// A kept copy of `scope`, without a parent but with equal text; null for null.
  const core::ModuleScope* keep(const core::ModuleScope* scope);

 private:
  std::map<std::pair<std::string, std::string>, core::ModuleScope> kept_;  // by path and type
};

/// A launch, or a piece of host work.
struct RecordedOp {
  const char* name;
  void (*replay)(kernels::Context&, const void*);  // null for host work
  Device device;
  std::size_t args;                 // offset in Recorded::args; for host work, index in Recorded::works
  std::size_t bytes;                // size of the arguments
  const core::ModuleScope* module;  // the calling module, for messages; null outside any module
  bool is_placed = false;           // host work that has its place among the launches
};

/// A leaf that the step changes, or on whose having a gradient it depends.
struct LeafState {
  core::Ref<autograd::Leaf> leaf;
  bool fresh_before;  // the leaf had a gradient before the step
  bool any_before;    // the step drops the gradient first, so an earlier one makes no difference
  bool fresh_after;
  bool taken_after;         // an update took the place of the gradient
  bool part_after = false;  // of the gradient only this rank's part counts
};

/// Memory from before the step that the step uses.
struct Held {
  core::Ref<detail::Storage> storage;
  std::uint32_t version;           // version at first use
  std::uint32_t work_changes = 0;  // increments by host work since then
};

/// A setting that the step read.
struct Flag {
  const bool* flag;
  bool value;
};

/// Draws from one generator.
struct Draws {
  Generator* generator;
  std::uint64_t seed;
  std::uint64_t first;
  std::uint64_t end;
};

/// Ops in lanes that a replay runs at the same time.
struct RecordedLanes {
  std::vector<std::size_t> first{};  // index of each lane's first op; at the end, the index behind the last lane
  detail::LaneFailure describe;      // may be empty
};

/// The full record of one run.
struct Recorded {
  Trace trace;
  std::vector<RecordedOp> ops;
  std::vector<RecordedLanes> lanes;  // in the order of the ops
  std::vector<std::byte> args;
  std::vector<std::function<void()>> works;
  std::vector<std::function<void(const std::exception&)>> on_failure;
  ModuleNames modules;
  std::vector<LeafState> leaves;
  std::vector<Flag> flags;
  std::vector<Held> held;
  std::vector<Draws> draws;
};

/// The memory of a step's tensors during replay.
struct Arena {
  Plan plan;
  std::vector<core::Ref<detail::Storage>> memory;  // one per block of the plan

  explicit Arena(Plan of);
  std::byte* place(std::size_t allocation) const {
    return memory[plan.block[allocation]]->data() + plan.offsets[allocation];
  }
};

/// Records the operations of the thread that made it while a Scope is open, and compares them with an earlier run. As
/// long as both are equal, tensors are placed in the arena where the replay will place them. Tensors of the step keep
/// the arena alive.
class Recording final : public kernels::LaunchObserver,
                        public detail::StepRecorder,
                        public std::enable_shared_from_this<Recording> {
 public:
  static constexpr std::size_t kArgsAlignment = 64;

  /// Takes an earlier run, which must outlive the scope, together with memory for its plan; or null for both.
  Recording(const Trace* before, std::shared_ptr<const Arena> arena, bool fuses_updates)
      : fuses_updates_(fuses_updates),
        arena_(std::move(arena)),
        comparison_(before),
        recorded_(std::make_unique<Recorded>()) {}

  class Scope {
   public:
    [[nodiscard]] explicit Scope(Recording& recording);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recording& recording_;
    core::ThreadStateScope state_;
    detail::RecorderScope recorder_;
  };

  /// Computes the gradients that no update has taken: the end of the step, inside the scope.
  void settle_gradients();
  /// Computes them after a step that failed, outside the scope, and drops a gradient that cannot be computed.
  void settle_or_drop_gradients();
  /// Returns the record; call this once, after the scope. Throws CaptureError if another thread took part.
  std::unique_ptr<Recorded> finish();
  /// Whether the step itself moved or froze parameters, switched a mode, or made a similar change.
  bool changed() const noexcept { return changed_; }
  /// Tells whether this run was equal to the earlier one.
  const Comparison& comparison() const noexcept { return comparison_; }

  void on_launch(kernels::Context& context, const kernels::LaunchRecord& record) override;
  core::Ref<detail::Storage> allocate(std::size_t bytes, Device device) override;
  bool fuses_updates() const noexcept override { return fuses_updates_; }
  void on_use(const detail::Storage& storage) noexcept override;
  void on_foreign_use(const detail::Storage& storage) noexcept override;
  void on_draw(Generator& generator, std::uint64_t first, std::uint64_t blocks) override;
  void on_leaf(autograd::Leaf& leaf, bool forget) override;
  void on_flag(const bool& flag) override;
  void on_step_change() noexcept override { changed_ = true; }
  void on_host_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                    std::function<void()> again) override;
  void on_placed_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                      std::function<void()> again) override;
  void run_lanes(std::size_t lanes, core::FunctionRef<void(std::size_t)> body, detail::LaneFailure describe) override;
  void on_replay_failure(std::function<void(const std::exception&)> settle) override;

 private:
  struct Live {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t index;
    const detail::Storage* storage;
    std::size_t turn;  // the last turn of a lane that used it
  };
  bool own_thread() const noexcept { return std::this_thread::get_id() == thread_; }
  [[noreturn]] void throw_foreign(const std::string& what);
  void add(const Event& event);
  void add_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now, std::function<void()> again,
                bool is_placed);
  void close() noexcept;
  void on_free(const void* data, std::size_t index) noexcept;
  Live* live_at(std::uint64_t address);
  void use(Live& live);
  Word word_of(std::uint64_t value);
  void begin_lane(std::size_t lane);
  void join_lanes();

  std::thread::id thread_ = std::this_thread::get_id();
  bool fuses_updates_;
  kernels::LaunchObserver* outer_ = nullptr;
  std::shared_ptr<const Arena> arena_;
  core::ForkSafeMutex mutex_;  // tensors may be released on other threads
  bool open_ = false;
  std::atomic<bool> foreign_{false};
  std::atomic<bool> changed_{false};
  Comparison comparison_;
  std::size_t allocations_ = 0;
  std::size_t turns_ = 0;                // turns of lanes so far
  std::size_t turn_ = 0;                 // the present one; 0 outside of lanes
  std::map<std::uintptr_t, Live> live_;  // by address
  std::unordered_map<const detail::Storage*, std::size_t> held_;
  std::unordered_map<const autograd::Leaf*, std::size_t> leaves_;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace tandem::inline v0::graph
