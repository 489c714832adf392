#include <tandem/graph/replay.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <tandem/build.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/fused_update.h>

namespace tandem::inline v0::graph {

namespace {

// Makes messages name the module in which an op was recorded, instead of the module around the replay.
class ModuleOfOp {
 public:
  ModuleOfOp() : current_(core::thread_state().scope), saved_(current_) {}
  ~ModuleOfOp() { current_ = saved_; }
  ModuleOfOp(const ModuleOfOp&) = delete;
  ModuleOfOp& operator=(const ModuleOfOp&) = delete;

  void set(const core::ModuleScope* module) noexcept { current_ = module; }

 private:
  const core::ModuleScope*& current_;
  const core::ModuleScope* saved_;
};

template <class Kernel>
bool is(const RecordedOp& op) {
  return op.replay == &kernels::replay<Kernel>;
}

void run_work(kernels::Context&, const void* work) { (*static_cast<const std::function<void()>*>(work))(); }

void run_pointwise(kernels::Context& context, const void* run) {
  static_cast<const kernels::PointwiseRun*>(run)->run(context);
}

}  // namespace

// Advances the generators, so that the recorded draws come next.
class Replay::DrawScope {
 public:
  explicit DrawScope(const std::vector<Draws>& draws) noexcept : draws_(draws) {
    for (const Draws& draw : draws) {
      draw.generator->begin_replay(draw.first, draw.end - draw.first);
    }
  }
  ~DrawScope() {
    for (const Draws& draw : draws_) {
      draw.generator->end_replay();
    }
  }
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

 private:
  const std::vector<Draws>& draws_;
};

Replay::Replay(std::unique_ptr<Recorded> recorded, std::shared_ptr<const Arena> arena, std::span<const Tensor> outputs)
    : recorded_(std::move(recorded)), arena_(std::move(arena)), on_own_stream_(core::thread_state().stream != nullptr) {
  args_ = detail::Storage::allocate(recorded_->args.size(), Device());
  std::memcpy(args_->data(), recorded_->args.data(), recorded_->args.size());
  recorded_->args = {};
  recorded_->trace = {};
  ops_.reserve(recorded_->ops.size());
  const RecordedOp* first = nullptr;
  for (const RecordedOp& op : recorded_->ops) {
    if (op.replay == nullptr) {
      works_.push_back(ops_.emplace_back(run_work, &recorded_->works[op.args], op.module));
      continue;
    }
    first = first == nullptr ? &op : first;
    one_device_ = one_device_ && op.device == first->device;
    device_ = op.device;
    ops_.push_back({op.replay, args_->data() + op.args, op.module});
  }
  join_pointwise();
  for (const Held& held : recorded_->held) {
    if (const std::uint32_t changes = held.storage->version() - held.version; changes != 0) {
      changed_.push_back({.storage = held.storage, .by_launches = changes > held.work_changes});
    }
  }
  for (const Tensor& output : outputs) {
    if (!output.defined()) {
      continue;
    }
    const core::Ref<detail::Storage>& storage = output.raw().storage;
    if (std::ranges::find(changed_, storage, &Changed::storage) == changed_.end()) {
      changed_.push_back({.storage = storage, .by_launches = true});
    }
  }
#if TANDEM_WITH_CUDA
  if (fits_gpu_graphs()) {
    cut_up();
  }
#endif
}

#if TANDEM_WITH_CUDA

// Cuts the step before and after each piece of host work that has its place among the launches. Short parts between
// two of these run launch by launch, because to launch a graph costs about as much as a few kernels. So do parts with
// more states than a graph has room for; a step without such work is refused then.
void Replay::cut_up() {
  constexpr std::size_t kFewest = 4;
  const auto is_placed = [&](std::size_t i) { return recorded_->ops[i].is_placed; };
  std::size_t work = 0;
  for (std::size_t first = 0; first < ops_.size();) {
    Part part{.first = first, .end = first + 1, .first_work = work, .end_work = work, .graph = nullptr};
    std::size_t launches = 0;
    while (part.end < ops_.size() && !is_placed(first) && !is_placed(part.end)) {
      ++part.end;
    }
    for (std::size_t i = first; i < part.end; ++i) {
      (recorded_->ops[i].replay == nullptr ? part.end_work : launches) += 1;
    }
    const bool is_whole = first == 0 && part.end == ops_.size();
    try {
      if (launches >= kFewest || (is_whole && !is_placed(first))) {
        part.graph = capture(part.first, part.end);
        first_graph_ = first_graph_ == nullptr ? part.graph.get() : first_graph_;
      }
    } catch (const CaptureError&) {
      if (is_whole) {
        throw;
      }
    }
    first = part.end;
    work = part.end_work;
    parts_.push_back(std::move(part));
  }
}

std::unique_ptr<GpuGraph> Replay::capture(std::size_t first, std::size_t end) const {
  return GpuGraph::capture(device_, [&](GpuGraph::NoteWorks note) {
    std::size_t works = 0;
    kernels::Context& context = kernels::context_for(device_);
    ModuleOfOp module;  // kernels keep the module's name for errors found during the graph's launches
    for (std::size_t i = first; i < end; ++i) {
      if (recorded_->ops[i].replay == nullptr) {
        note(++works);
      } else {
        module.set(ops_[i].module);
        ops_[i].run(context, ops_[i].args);
      }
    }
  });
}

#endif

std::size_t Replay::gpu_graphs() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(parts_, [](const Part& part) { return part.graph != nullptr; }));
}

// Makes runs of element-wise launches, within a lane.
void Replay::join_pointwise() {
  std::vector<std::size_t> borders;
  for (const RecordedLanes& lanes : recorded_->lanes) {
    borders.insert(borders.end(), lanes.first.begin(), lanes.first.end());
  }
  borders.push_back(ops_.size());
  const auto launch_at = [&](std::size_t i) { return static_cast<const kernels::Pointwise*>(ops_[i].args); };
  const auto is_pointwise = [&](std::size_t i) {
    const RecordedOp& op = recorded_->ops[i];
    return is<kernels::Pointwise>(op) && op.device.type == DeviceType::cpu;
  };
  std::size_t first = 0;
  for (const std::size_t border : borders) {
    while (first < border) {
      std::size_t next = first + 1;
      if (is_pointwise(first) && kernels::PointwiseRun::fits(*launch_at(first))) {
        auto run = std::make_unique<kernels::PointwiseRun>(*launch_at(first));
        while (next < border && is_pointwise(next) && recorded_->ops[next].device == recorded_->ops[first].device &&
               run->join(*launch_at(next))) {
          ++next;
        }
        if (run->launches() > 1) {
          ops_[first] = {run_pointwise, run.get(), ops_[first].module, run->launches()};
          joined_ += run->launches() - 1;
          pointwise_runs_.push_back(std::move(run));
        }
      }
      first = next;
    }
  }
}

std::size_t Replay::fused_updates() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      recorded_->ops, [](const RecordedOp& op) { return is<kernels::MatmulSgd>(op) || is<kernels::MatmulAdam>(op); }));
}

// Whether the step launches on one GPU only, and copies nothing to another device.
bool Replay::fits_gpu_graphs() const {
  const bool copies = std::any_of(recorded_->ops.begin(), recorded_->ops.end(), is<kernels::Transfer>);
  return one_device_ && device_.type == DeviceType::cuda && !copies;
}

const char* Replay::stale() const {
  for (const Held& held : recorded_->held) {
    if (held.storage->is_unique()) {
      return "a tensor that the step reads was replaced or let go";
    }
  }
  for (const Draws& draws : recorded_->draws) {
    if (draws.seed != draws.generator->seed()) {
      return "a generator was seeded anew";
    }
  }
  return nullptr;
}

void Replay::run() {
  for (Changed& changed : changed_) {
    changed.version = changed.storage->version();
  }
  try {
    run_step();
  } catch (const std::exception& failure) {
    fail(failure);
    throw;
  } catch (...) {
    fail(std::runtime_error("what was thrown is not a std::exception"));
    throw;
  }
}

void Replay::fail(const std::exception& failure) {
  bump_versions();
  for (const auto& settle : recorded_->on_failure) {
    settle(failure);
  }
  // A part of the step was done: memory has changed, and gradients that the step drops first are incomplete.
  for (const LeafState& state : recorded_->leaves) {
    if (state.any_before) {
      state.leaf->set_fresh(false);
    }
  }
}

// Host work such as an optimiser's has its own increment, in its place among the rest. A second one would look like
// another change to whoever noted the version in between. The increments of launches come here, all at once.
void Replay::bump_versions() const {
  for (const Changed& changed : changed_) {
    if (changed.by_launches || changed.storage->version() == changed.version) {
      changed.storage->bump_version();
    }
  }
}

void Replay::run_step() {
  const DrawScope draws(recorded_->draws);
  if (on_own_stream_ || core::thread_state().stream != nullptr) [[unlikely]] {
    note_streams();
  }
  if (kernels::LaunchObserver* observer = core::thread_state().observer; observer != nullptr) [[unlikely]] {
    run_observed(*observer);
  } else if (first_graph_ != nullptr && first_graph_->on_current_stream()) {
    run_parts();
  } else {
    run_ops();
  }
  for (const LeafState& state : recorded_->leaves) {
    if (state.any_before) {
      state.leaf->set_fresh(false);  // as zero_grad() in the step
    }
    state.leaf->set_fresh(state.fresh_after);
    state.leaf->set_taken(state.taken_after);
    if (state.part_after) {
      state.leaf->keep_only_part();
    }
  }
  bump_versions();
}

// Records this thread's streams for the GPU memory that they are about to use.
void Replay::note_streams() const {
  for (const core::Ref<detail::Storage>& memory : arena_->memory) {
    memory->note_stream();
  }
  for (const Held& held : recorded_->held) {
    held.storage->note_stream();
  }
}

void Replay::run_ops() const {
  std::size_t next = 0;
  for (const RecordedLanes& lanes : recorded_->lanes) {
    run_range(next, lanes.first.front());
    run_lanes(lanes);
    next = lanes.first.back();
  }
  run_range(next, ops_.size());
}

void Replay::run_range(std::size_t first, std::size_t end) const {
  ModuleOfOp module;
  if (one_device_) {
    kernels::Context& context = kernels::context_for(device_);
    for (std::size_t i = first; i < end; i += ops_[i].launches) {
      module.set(ops_[i].module);
      ops_[i].run(context, ops_[i].args);
    }
    return;
  }
  for (std::size_t i = first; i < end; i += ops_[i].launches) {
    module.set(ops_[i].module);
    ops_[i].run(kernels::context_for(recorded_->ops[i].device), ops_[i].args);
  }
}

// All lanes run to their end or failure. The failure of the lowest lane is thrown.
void Replay::run_lanes(const RecordedLanes& lanes) const {
  const std::size_t count = lanes.first.size() - 1;
  std::vector<std::exception_ptr> failures(count);
  std::size_t working = 0;
  for (std::size_t k = 0; k < count; ++k) {
    working += lanes.first[k] < lanes.first[k + 1] ? 1 : 0;
  }
  const auto run_lane = [&](std::int64_t lane) {
    const auto k = static_cast<std::size_t>(lane);
    try {
      run_range(lanes.first[k], lanes.first[k + 1]);
    } catch (...) {
      failures[k] = std::current_exception();
    }
  };
  if (working > 1) {
    core::ThreadPool::instance().for_each_lane(static_cast<std::int64_t>(count), run_lane);
  } else {
    for (std::size_t k = 0; k < count; ++k) {
      run_lane(static_cast<std::int64_t>(k));
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    if (failures[k]) {
      std::rethrow_exception(lanes.describe ? lanes.describe(k, failures[k]) : failures[k]);
    }
  }
}

void Replay::run_parts() const {
  for (const Part& part : parts_) {
    if (part.graph != nullptr) {
      run_gpu_graph(part);
    } else {
      run_range(part.first, part.end);
    }
  }
}

// The host work runs first. Its effect on launches in the middle is saved for each position.
void Replay::run_gpu_graph(const Part& part) const {
  part.graph->note_works(0);
  kernels::Context& context = kernels::context_for(device_);
  ModuleOfOp module;
  for (std::size_t i = part.first_work; i < part.end_work; ++i) {
    module.set(works_[i].module);
    works_[i].run(context, works_[i].args);
    part.graph->note_works(i + 1 - part.first_work);
  }
  part.graph->launch();
}

void Replay::run_observed(kernels::LaunchObserver& observer) const {
  ModuleOfOp module;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const RecordedOp& op = recorded_->ops[i];
    module.set(op.module);
    kernels::Context& context = kernels::context_for(op.device);
    if (op.replay == nullptr) {
      ops_[i].run(context, ops_[i].args);
    } else {
      const void* args = args_->data() + op.args;
      observer.on_launch(context, {op.name, args, op.bytes, op.replay});
      op.replay(context, args);
    }
  }
}

}  // namespace tandem::inline v0::graph
