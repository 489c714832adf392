#include <tandem/parallel/distributed/reducer.h>

#include <cmath>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/huge_pages.h>
#include <tandem/core/span.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/warning.h>
#include <tandem/nn/summary.h>
#include <tandem/parallel/comm/same_lines.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer_pass.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kStillRunning =
    "DistributedDataParallel: another backward pass through the wrapper is still running (of another thread, or around "
    "a hook); it has one at a time";

// A rank that is alone keeps all of the state.
bool shares_out(const DistributedOptions& options, const ProcessGroup& group) {
  return options.shard != Shard::none && group.size() > 1;
}

// The bytes of memory that elements take: whole pages on CPUs.
std::int64_t memory_of(const tandem::detail::View& elements) {
  const auto all = static_cast<std::size_t>(elements.numel()) * item_size(elements.dtype);
  const bool is_on_cpu = elements.device().type == DeviceType::cpu;
  return static_cast<std::int64_t>(is_on_cpu ? core::resident_bytes(elements.data(), all) : all);
}

// Differences between ranks would cause later failures with less helpful messages. So models are compared first, then
// options, then the places of gradients, which follow from both.
Buckets agreed_buckets(ProcessGroup& group, const nn::ModuleRef& module, const DistributedOptions& options) {
  check_same(group, "DistributedDataParallel", describe(module), "models",
             "All ranks must build the same model, and freeze the same parameters, before they wrap it");
  check_same(group, "DistributedDataParallel", nn::layer_lines(module), "layers",
             "All ranks must build the same model; ranks that divide a layer among themselves are no group for it");
  nn::NamedTensors trained;
  for (const auto& [name, parameter] : module.named_parameters()) {
    check<ConfigError>(
        !is_wrapped(parameter),
        "DistributedDataParallel: parameter '{}' belongs to another DistributedDataParallel already; wrap a "
        "module once, or again when that wrapper and the losses computed through it are gone [TDM-E612]",
        name);
    if (parameter.requires_grad()) {
      const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
      check<ConfigError>(group.size() == 1 || leaf->partners.get(autograd::PartnerKind::tensor) != group.partners(),
                         "DistributedDataParallel: the ranks of this group divide parameter '{}' among themselves "
                         "(divide_among), and have nothing of it to average; take the group of another axis",
                         name);
      trained.emplace_back(name, parameter);
    }
  }
  check<ConfigError>(!trained.empty(),
                     "DistributedDataParallel: the module has no parameter that requires a gradient{}",
                     module.parameters().empty()
                         ? ", nor any other; register its layers: nn::Linear fc = child(\"fc\", nn::Linear(6, 3))"
                         : "; use it as it is");
  for (const auto& [name, buffer] : module.named_buffers()) {
    check_takes_no_gradient(name, buffer);
  }
  check_same(group, "DistributedDataParallel",
             {fmt::format(
                 "bucket_cap_mb = {}, find_unused_parameters = {}, broadcast_buffers = {}, init_sync = {}, shard = {}",
                 options.bucket_cap_mb ? fmt::format("{}", *options.bucket_cap_mb) : "default",
                 options.find_unused_parameters, options.broadcast_buffers, options.init_sync, name_of(options.shard))},
             "options", "All ranks must pass the same options");
  Buckets buckets(trained, bucket_limits(group, options.bucket_cap_mb));
  check_same(
      group, "DistributedDataParallel", buckets.describe(), "places of gradients",
      "Gradients lie in memory in the order in which an optimiser that was made before got the parameters: let it be "
      "the same on all ranks, or make optimisers after wrapping");
  return buckets;
}

}  // namespace

Reducer::Reducer(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options)
    : link_(group),
      buckets_(agreed_buckets(group, module, options)),
      exchange_(link_, buckets_, shares_out(options, group)),
      used_(link_, buckets_, options.find_unused_parameters),
      module_(std::move(module), group, options) {
  check<ConfigError>(
      options.shard != Shard::parameters || !options.find_unused_parameters,
      "DistributedDataParallel: with find_unused_parameters ranks may use different parameters, and with "
      "shard = parameters all ranks gather the same ones; leave one of them out, or take "
      "shard = gradients");
  if (shares_out(options, group)) {
    sharded_.emplace(link_, buckets_, options.shard);
  }
  // One line for each group.
  if (link_.size() > 1 && link_.is_first()) {
    first_steps_.emplace(&group);
  }
  for (const BucketMember& member : buckets_.members()) {
    member.leaf->observer = this;
    member.leaf->note_change();  // a step captured earlier would run without the other ranks
  }
}

Reducer::~Reducer() {
  for (const BucketMember& member : buckets_.members()) {
    member.leaf->observer = nullptr;
  }
}

void Reducer::check_parameters() {
  link_.check_open();
  module_.check_unchanged(buckets_.members(), *this);
  if (link_.size() > 1 && !told_of_drift_ && versions_after_local_pass_ &&
      *versions_after_local_pass_ != buckets_.parameter_versions()) {
    told_of_drift_ = true;
    core::warn(fmt::format(
        "{}: parameters of rank {} have changed after a backward pass in no_sync(), whose gradients are its own: the "
        "ranks' parameters drift apart. optimizer.step() belongs after the backward pass outside of no_sync(), which "
        "reduces all of them",
        link_.wrapper_name(), link_.names().rank(link_.rank())));
  }
}

void Reducer::before_forward() {
  tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder();
  if (recorder == nullptr) {
    check<CaptureError>(recorded_local_scopes_ == 0,
                        "DistributedDataParallel: a NoSync that a captured step has made outlives the step; end it "
                        "within the step, or make it around the step");
    check_parameters();
    return;
  }
  life_.watch();
  const auto check_replay = [this] {
    check_parameters();
    check_can_be_captured();
  };
  recorder->on_host_work("DistributedDataParallel::forward", 0, check_replay, check_replay);
}

void Reducer::check_can_be_captured() const {
  check<CaptureError>(!used_.may_be_unused(),
                      "DistributedDataParallel: a captured step cannot have find_unused_parameters, with which other "
                      "ranks decide in each pass which parameters have a gradient; leave the option out, or call the "
                      "function itself");
  check<CaptureError>(join() == nullptr,
                      "DistributedDataParallel: a captured step cannot run in a Join, where the ranks exchange the "
                      "sizes of their batches; call the function itself there");
}

void Reducer::add_local_scopes(int count) noexcept {
  local_scopes_ += count;
  is_local_.set(local_scopes_ > 0);
}

void Reducer::set_comm_hook(CommHook hook) {
  check<ConfigError>(
      !sharded_,
      "register_comm_hook: with shard the ranks reduce parts of buckets, and a hook whole ones; leave one "
      "of them out");
  exchange_.set_hook(std::move(hook));
}

void Reducer::set_join(const std::shared_ptr<JoinState>& join, std::size_t index) {
  join_ = join;
  join_index_ = index;
}

void Reducer::refuse_pass(const std::exception& failure, bool synced) const {
  if (synced) {
    link_.abort(fmt::format("its backward pass failed: {}", failure.what()));
  }
}

void Reducer::look_for_nan(const tandem::detail::View& gradient, const tandem::detail::View& loss) {
  if (link_.size() == 1 || gradient.device().type != DeviceType::cpu || !is_floating_point(gradient.dtype)) {
    return;
  }
  const auto look = [this](const tandem::detail::View& elements, const tandem::detail::View& value) {
    const NoGradGuard no_grad;
    const Tensor values(elements);
    const bool is_loss_nan = value.defined() && std::isnan(Tensor(value).item());
    const bool has_nan = std::isnan(values.sum().item()) && isnan(values).any().item<bool>();
    if ((!is_loss_nan && !has_nan) || told_of_nan_.exchange(true)) {
      return;
    }
    core::warn(fmt::format("rank {}: its loss {} {} {}, which the mean carries to all ranks",
                           link_.names().rank(link_.rank()), has_nan ? "gives" : "is NaN and gives",
                           link_.wrapper_name(), has_nan ? "a gradient with NaN" : "such gradients"));
  };
  if (tandem::detail::step_recorder() == nullptr) {
    look(gradient, loss);
    return;
  }
  const auto look_again = [look, elements = tandem::detail::borrowed(gradient),
                           value = tandem::detail::borrowed(loss)] { look(elements, value); };
  tandem::detail::placed_work("DistributedDataParallel::look_for_nan", look_again);
}

std::int64_t Reducer::gradient_bytes() const {
  std::int64_t bytes = 0;
  for (const BucketRange& range : buckets_.ranges()) {
    bytes += memory_of(range.gradients);
  }
  return bytes;
}

std::int64_t Reducer::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < buckets_.ranges().size(); ++b) {
    bytes += memory_of(buckets_.values_of(b));
  }
  return bytes;
}

std::int64_t Reducer::peak_parameter_bytes() const {
  if (sharded_ && sharded_->keeps_parts()) {
    return sharded_->peak_parameter_bytes();
  }
  std::int64_t bytes = 0;
  for (const BucketRange& range : buckets_.ranges()) {
    bytes += range.gradients.numel() * static_cast<std::int64_t>(item_size(range.gradients.dtype));
  }
  return bytes;
}

void Reducer::check_pass(const autograd::Node& node, bool synced) const {
  if (synced) {
    link_.check_open();
  }
  exchange_.refuse_within_hook(node.pass.load(std::memory_order_relaxed));
}

void Reducer::begin_pass(const autograd::Node& node, bool synced, std::int64_t samples) {
  const void* id = node.pass.load(std::memory_order_relaxed);
  const std::lock_guard lock(lock_);
  if (pass_ == nullptr) {
    pass_ = std::make_unique<ReducerPass>(shared_from_this(), id);
    autograd::listen_to_pass(node, *this);
  }
  check<AutogradError>(pass_->id() == id, kStillRunning);
  pass_->add_output(synced, samples);
}

void Reducer::on_pass_begin() {
  const auto begin = [this] {
    const std::lock_guard lock(lock_);
    pass_->begin();
  };
  tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder();
  if (recorder == nullptr) {
    begin();
    return;
  }
  check_can_be_captured();
  life_.watch();
  recorder->on_replay_failure([this](const std::exception& failure) { fail_replayed_pass(failure); });
  const bool synced = pass_->is_synced();
  recorder->on_host_work("DistributedDataParallel::begin", synced ? 1 : 0, begin,
                         [this, synced] { begin_replayed_pass(synced); });
}

bool Reducer::on_gradient(autograd::Leaf& leaf) {
  const void* id = leaf.pass.load(std::memory_order_relaxed);
  exchange_.refuse_within_hook(id);
  const std::lock_guard lock(lock_);
  if (pass_ == nullptr || pass_->id() != id) {
    leaf.set_fresh(false);
    fail<AutogradError>(
        "DistributedDataParallel: parameter '{}' got a gradient in a backward pass in which no output of the wrapped "
        "module took part, as when ddp.module() is called itself: it would be that of this rank alone. Call ddp(...), "
        "and within ddp.no_sync() where gradients are to stay local [TDM-E614]",
        buckets_.members()[leaf.observed_as].name);
  }
  const std::size_t member = leaf.observed_as;
  if (tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder(); recorder != nullptr) [[unlikely]] {
    record_gradient(*recorder, member);
  } else {
    pass_->on_gradient(member);
    pass_->send_ready();
  }
  return pass_->is_synced();
}

// Only a gradient that completes a bucket has its place among the launches. Lanes of several devices complete buckets
// in any order, so each of these sends what may leave then.
void Reducer::record_gradient(tandem::detail::StepRecorder& recorder, std::size_t member) {
  recorder.on_host_work(
      "DistributedDataParallel::gradient", member, [&] { pass_->on_gradient(member); },
      [this, member] {
        const std::lock_guard replay_lock(lock_);
        pass_->on_gradient(member);
      });
  if (pass_->completes_bucket(member)) {
    recorder.on_placed_work(
        "DistributedDataParallel::send", member, [&] { pass_->send_ready(); },
        [this] {
          const std::lock_guard replay_lock(lock_);
          pass_->send_ready();
        });
  }
}

void Reducer::on_pass_end() {
  if (tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder(); recorder != nullptr) [[unlikely]] {
    const auto end = [this] { end_pass(); };
    recorder->on_placed_work("DistributedDataParallel::end", 0, end, end);
  } else {
    end_pass();
  }
}

// A pass may hold the last reference to the reducer and its lock, so destroy the pass after releasing the lock.
void Reducer::end_pass() {
  std::unique_ptr<ReducerPass> pass;
  const std::lock_guard lock(lock_);
  pass = std::move(pass_);
  pass->end();  // if it throws, this was the pass's last call
  pass_ = std::move(pass);
}

// At the end of a reduced pass, which all ranks make.
void Reducer::look_at_steps() {
  if (core::needs_step_facts()) {
    note_facts();
  }
  if (first_steps_) {
    first_steps_->after_pass();
  }
}

void Reducer::note_facts() {
  std::int64_t bytes = 0;
  for (const BucketRange& range : buckets_.ranges()) {
    bytes += range.gradients.numel() * static_cast<std::int64_t>(item_size(range.gradients.dtype));
  }
  core::set_step_fact(Fact::buckets, static_cast<double>(buckets_.ranges().size()));
  core::set_step_fact(Fact::gradient_bytes, static_cast<double>(bytes));
  core::set_step_fact(Fact::shares_memory, link_.group().queue()->backend().shares_memory() ? 1 : 0);
  if (const Device device = buckets_.ranges().front().gradients.device(); device.type == DeviceType::cuda) {
    core::set_step_fact(Fact::gpu, 1 + device.index);
    core::set_step_fact(Fact::is_launched, link_.group().queue()->backend().gpu() ? 1 : 0);
  }
  core::set_step_fact(Fact::shards_updates, sharded_ ? 1 : 0);
  core::set_step_fact(Fact::shards_parameters, parts() != nullptr ? 1 : 0);
}

void Reducer::on_pass_done() {
  std::unique_ptr<ReducerPass> done;
  std::vector<autograd::Leaf*> hooked;
  {
    const std::lock_guard lock(lock_);
    done = std::move(pass_);
    hooked = done->leaves_with_hooks();
  }
  done->run_post_hooks(hooked);  // without the lock: hooks may begin another pass
  if (tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder(); recorder != nullptr) [[unlikely]] {
    recorder->on_placed_work("DistributedDataParallel::done", 0, [] {}, [this] { end_replay(); });
  }
}

void Reducer::on_pass_failed(const std::exception& failure) {
  std::unique_ptr<ReducerPass> failed;
  const std::lock_guard lock(lock_);
  failed = std::move(pass_);
  failed->fail(failure);
}

// In a replay, every gradient arrives that arrived while the step was recorded, so none is absent. Hooks of parameters
// are part of the recorded step.
void Reducer::begin_replayed_pass(bool synced) {
  if (synced) {
    link_.check_open();
  }
  try {
    check_can_be_captured();
    exchange_.refuse_within_hook(this);
    const std::lock_guard lock(lock_);
    check<AutogradError>(pass_ == nullptr, kStillRunning);
    pass_ = std::make_unique<ReducerPass>(shared_from_this(), this);
    is_replay_ = true;
    pass_->add_output(synced, detail::kUncounted);
  } catch (const std::exception& error) {
    refuse_pass(error, synced);
    throw;
  }
}

// The replay has done what hooks of parameters did, and what other wrappers in the pass did at its end.
void Reducer::end_replay() {
  std::unique_ptr<ReducerPass> done;
  const std::lock_guard lock(lock_);
  done = std::move(pass_);
  is_replay_ = false;
}

// A pass that has failed by itself is gone.
void Reducer::fail_replayed_pass(const std::exception& failure) {
  std::unique_ptr<ReducerPass> failed;
  const std::lock_guard lock(lock_);
  if (std::exchange(is_replay_, false) && pass_ != nullptr) {
    failed = std::move(pass_);
    failed->fail(failure);
  }
}

void Reducer::shadow() {
  const SpanScope timed(Phase::backward);
  {
    const std::lock_guard lock(lock_);
    check<AutogradError>(pass_ == nullptr, kStillRunning);
    pass_ = std::make_unique<ReducerPass>(shared_from_this(), this);
  }
  try {
    const std::lock_guard lock(lock_);
    pass_->follow();
  } catch (const std::exception& error) {
    on_pass_failed(error);
    throw;
  }
  on_pass_end();
  on_pass_done();
}

}  // namespace tandem::inline v0::parallel
