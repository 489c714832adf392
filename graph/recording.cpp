#include <tandem/graph/recording.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>

#include <tandem/core/check.h>
#include <tandem/tensor/cpu_allocator.h>

namespace tandem::inline v0::graph {

Arena::Arena(Plan of) : plan(std::move(of)) {
  for (const Plan::Block& block : plan.blocks) {
    memory.push_back(detail::Storage::allocate(block.bytes, device_at(block.place)));
  }
}

const core::ModuleScope* ModuleNames::keep(const core::ModuleScope* scope) {
  if (scope == nullptr) {
    return nullptr;
  }
  const auto [at, is_new] = kept_.try_emplace({scope->path, scope->type});
  auto& [names, kept] = *at;
  kept = {names.first.c_str(), names.second.c_str(), nullptr};
  return &kept;
}

Recording::Scope::Scope(Recording& recording)
    : recording_(recording), state_(core::thread_state()), recorder_(recording) {
  recording.outer_ = core::thread_state().observer;
  recording.open_ = true;
  core::thread_state().observer = &recording;
}

Recording::Scope::~Scope() {
  core::thread_state().observer = recording_.outer_;
  recording_.close();
}

void Recording::close() noexcept {
  const std::lock_guard lock(mutex_);
  open_ = false;
  for (const auto& [address, live] : live_) {
    live.storage->set_recorded(false);
  }
  live_.clear();
}

void Recording::settle_gradients() {
  const std::vector<LeafState> leaves = recorded_->leaves;  // a copy, since more may be noted meanwhile
  for (const LeafState& state : leaves) {
    if (state.leaf->postponed() != nullptr) {
      state.leaf->settle();
    }
  }
}

void Recording::settle_or_drop_gradients() {
  for (const LeafState& state : recorded_->leaves) {
    try {
      if (state.leaf->postponed() != nullptr) {
        state.leaf->settle();
      }
    } catch (const Error&) {
      state.leaf->set_fresh(false);
    }
  }
}

std::unique_ptr<Recorded> Recording::finish() {
  check<CaptureError>(!foreign_,
                      "captured step: another thread used a tensor of the step while it was recorded; only what one "
                      "thread does is recorded. Leave such work outside the captured function");
  comparison_.end(recorded_->trace);
  // A leaf without other owners was made by the step itself.
  std::erase_if(recorded_->leaves,
                [](const LeafState& state) { return state.leaf->tensor == nullptr || state.leaf->is_unique(); });
  for (LeafState& state : recorded_->leaves) {
    state.fresh_after = state.leaf->fresh();
    state.taken_after = state.leaf->is_taken();
    state.part_after = state.leaf->has_only_part();
  }
  for (const Held& held : recorded_->held) {
    if (held.storage->is_unique()) {
      comparison_.differ(
          fmt::format("the step read a tensor of {} bytes from before it and replaced it or let it go; what goes on "
                      "from step to step must be written in place: state.copy_(...), total.add_(...)",
                      held.storage->bytes()));
    }
  }
  arena_.reset();
  held_.clear();
  leaves_.clear();
  return std::move(recorded_);
}

void Recording::throw_foreign(const std::string& what) {
  foreign_ = true;
  fail<CaptureError>(
      "captured step: {} on another thread than that of the step; only what one thread does is recorded. Leave such "
      "work outside the captured function",
      what);
}

void Recording::add(const Event& event) {
  recorded_->trace.events.push_back(event);
  comparison_.add(recorded_->trace);
}

Recording::Live* Recording::live_at(std::uint64_t address) {
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) {
    return nullptr;
  }
  Live& live = (--after)->second;
  return address < live.end ? &live : nullptr;
}

// Notes the use by a lane.
void Recording::use(Live& live) {
  if (turn_ != 0 && live.turn != turn_) {
    live.turn = turn_;
    add({.kind = Event::Kind::use, .number = live.index});
  }
}

Word Recording::word_of(std::uint64_t value) {
  Live* live = live_at(value);
  if (live == nullptr) {
    return {value};
  }
  use(*live);
  return {value - live->begin, static_cast<std::uint32_t>(live->index + 1)};
}

void Recording::on_launch(kernels::Context& context, const kernels::LaunchRecord& record) {
  if (!own_thread()) [[unlikely]] {
    throw_foreign(fmt::format("'{}' was launched", record.name));
  }
  if (outer_ != nullptr) {
    outer_->on_launch(context, record);
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& args = recorded_->args;
  const std::size_t first = (args.size() + kArgsAlignment - 1) / kArgsAlignment * kArgsAlignment;
  args.resize(first + record.args_bytes);
  std::memcpy(args.data() + first, record.args, record.args_bytes);
  recorded_->ops.push_back({record.name, record.replay, context.device, first, record.args_bytes,
                            recorded_->modules.keep(core::thread_state().scope)});

  std::vector<Word>& words = recorded_->trace.words;
  const std::size_t first_word = words.size();
  for (std::size_t at = 0; at < record.args_bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, args.data() + first + at, std::min(sizeof(value), record.args_bytes - at));
    words.push_back(word_of(value));
  }
  add({.kind = Event::Kind::launch,
       .name = record.name,
       .identity = reinterpret_cast<const void*>(record.replay),
       .place = place_of(context.device),
       .first_word = first_word,
       .words = words.size() - first_word});
}

core::Ref<detail::Storage> Recording::allocate(std::size_t bytes, Device device) {
  if (!own_thread()) [[unlikely]] {
    throw_foreign("a tensor was made");
  }
  const std::lock_guard lock(mutex_);
  const std::size_t index = allocations_++;
  add({.kind = Event::Kind::allocate, .number = bytes, .place = place_of(device)});
  core::Ref<detail::Storage> storage;
  if (comparison_.equal()) {
    storage = detail::Storage::adopt(
        arena_->place(index), bytes, device,
        [self = shared_from_this(), arena = arena_, index](void* memory) { self->on_free(memory, index); },
        arena_->memory[arena_->plan.block[index]]);
  } else {
    core::Ref<detail::Storage> memory = detail::Storage::allocate_unrecorded(bytes, device);
    std::byte* data = memory->data();
    storage = detail::Storage::adopt(
        data, bytes, device, [self = shared_from_this(), index](void* first) { self->on_free(first, index); },
        std::move(memory));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(storage->data());
  live_.insert_or_assign(begin, Live{begin, begin + std::max<std::size_t>(bytes, 1), index, storage.get(), turn_});
  storage->set_recorded(true);
  return storage;
}

void Recording::on_free(const void* data, std::size_t index) noexcept {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    return;
  }
  foreign_ = foreign_ || !own_thread();
  live_.erase(reinterpret_cast<std::uintptr_t>(data));
  add({.kind = Event::Kind::free, .number = index});
}

void Recording::on_use(const detail::Storage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  Live* own = live_at(reinterpret_cast<std::uintptr_t>(storage.data()));
  if (!own_thread()) {
    foreign_ = foreign_ || own != nullptr;
    return;
  }
  if (own != nullptr) {
    use(*own);
    return;
  }
  // Replicas make an alias for each step.
  const detail::Storage& original = storage.is_alias() ? *storage.parent() : storage;
  if (held_.emplace(&original, recorded_->held.size()).second) {
    original.watch();
    recorded_->held.push_back(
        {core::Ref<detail::Storage>(const_cast<detail::Storage*>(&original)), original.version()});
  }
}

void Recording::on_foreign_use(const detail::Storage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  foreign_ = foreign_ || live_at(reinterpret_cast<std::uintptr_t>(storage.data())) != nullptr;
}

void Recording::on_draw(Generator& generator, std::uint64_t first, std::uint64_t blocks) {
  if (!own_thread()) [[unlikely]] {
    throw_foreign("random numbers were drawn");
  }
  const std::lock_guard lock(mutex_);
  add({.kind = Event::Kind::draw, .identity = &generator, .number = blocks, .place = first});
  for (Draws& draws : recorded_->draws) {
    if (draws.generator == &generator && draws.seed == generator.seed()) {
      draws.end = std::max(draws.end, first + blocks);  // replicas draw from one position on
      return;
    }
  }
  recorded_->draws.push_back({&generator, generator.seed(), first, first + blocks});
}

void Recording::on_leaf(autograd::Leaf& leaf, bool forget) {
  const std::lock_guard lock(mutex_);
  if (leaves_.emplace(&leaf, recorded_->leaves.size()).second) {
    recorded_->leaves.push_back({core::Ref<autograd::Leaf>(&leaf), leaf.fresh(), forget, false, false});
  }
}

void Recording::on_flag(const bool& flag) {
  const std::lock_guard lock(mutex_);
  std::vector<Flag>& flags = recorded_->flags;
  if (std::none_of(flags.begin(), flags.end(), [&](const Flag& known) { return known.flag == &flag; })) {
    flags.push_back({&flag, flag});
  }
}

void Recording::on_host_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                             std::function<void()> again) {
  add_work(name, which, now, std::move(again), false);
}

void Recording::on_placed_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                               std::function<void()> again) {
  const core::ThreadState& state = core::thread_state();
  const auto as_now = [again = std::move(again), grad_enabled = state.grad_enabled, device = state.device] {
    core::ThreadState replayed = core::thread_state();
    replayed.grad_enabled = grad_enabled;
    replayed.device = device;
    const core::ThreadStateScope as_recorded(replayed);
    again();
  };
  add_work(name, which, now, as_now, true);
}

void Recording::begin_lane(std::size_t lane) {
  const std::lock_guard lock(mutex_);
  turn_ = ++turns_;
  recorded_->lanes.back().first.push_back(recorded_->ops.size());
  add({.kind = Event::Kind::lane, .number = lane});
}

void Recording::join_lanes() {
  const std::lock_guard lock(mutex_);
  turn_ = 0;
  recorded_->lanes.back().first.push_back(recorded_->ops.size());
  add({.kind = Event::Kind::join});
}

void Recording::run_lanes(std::size_t lanes, core::FunctionRef<void(std::size_t)> body, detail::LaneFailure describe) {
  if (!own_thread()) [[unlikely]] {
    throw_foreign("replicas were computed");
  }
  if (turn_ != 0) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      body(lane);
    }
    return;
  }
  recorded_->lanes.push_back({.describe = std::move(describe)});
  try {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      begin_lane(lane);
      body(lane);
    }
  } catch (...) {
    join_lanes();
    throw;
  }
  join_lanes();
}

void Recording::on_replay_failure(std::function<void(const std::exception&)> settle) {
  recorded_->on_failure.push_back(std::move(settle));
}

void Recording::add_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                         std::function<void()> again, bool is_placed) {
  if (!own_thread()) [[unlikely]] {
    throw_foreign(fmt::format("'{}' was done", name));
  }
  recorded_->works.push_back(std::move(again));
  core::ThreadState state = core::thread_state();
  {
    const std::lock_guard lock(mutex_);
    recorded_->ops.push_back(
        {name, nullptr, state.device, recorded_->works.size() - 1, 0, recorded_->modules.keep(state.scope), is_placed});
    add({.kind = Event::Kind::work, .name = name, .number = which});
  }
  state.observer = outer_;
  state.recorder = nullptr;
  const core::ThreadStateScope unrecorded(state);
  std::vector<std::uint32_t> versions;
  std::ranges::transform(recorded_->held, std::back_inserter(versions),
                         [](const Held& held) { return held.storage->version(); });
  now();
  for (std::size_t i = 0; i < versions.size(); ++i) {
    Held& held = recorded_->held[i];
    held.work_changes += held.storage->version() - versions[i];
  }
}

}  // namespace tandem::inline v0::graph
