#include <tandem/parallel/distributed/parameter_parts.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/tensor/frame.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using tandem::detail::Storage;
using tandem::detail::StorageGuard;

namespace {

constexpr const char* kGatherAdvice =
    "With shard = parameters all ranks make the same passes, evaluation included, and call state_dict(), "
    "load_state_dict() and whole_parameters() together. What one rank does alone belongs into a scope of "
    "whole_parameters() that all ranks open";

class GoneGuard final : public StorageGuard {
 public:
  void on_use(const Storage&) override {
    fail<ConfigError>(
        "the elements of a parameter are not whole: the DistributedDataParallel that has shared them out "
        "(shard = parameters) is gone. Make the module anew and load a state_dict() that was taken while the wrapper "
        "lived, or let the wrapper go within a scope of whole_parameters()");
  }
};

// Outlives all storages.
constinit GoneGuard gone_guard;

// Replicas run on any thread, perhaps one after another on that of the pass, in no fixed order.
bool is_in_replica() noexcept {
  const core::Frame* frame = core::thread_state().frame;
  return frame != nullptr && frame->replica().count > 1;
}

bool is_within(const core::ModuleScope* scope, const char* path) noexcept {
  const core::ModuleScope* call = core::thread_state().scope;
  while (call != nullptr && (call != scope || call->path != path)) {
    call = call->parent;
  }
  return call != nullptr;
}

}  // namespace

ParameterParts::ParameterParts(const GroupLink& link, const Buckets& buckets) : link_(link), buckets_(buckets) {
  const Device device = buckets.ranges().front().gradients.device();
  for (const BucketRange& range : buckets.ranges()) {
    check<ConfigError>(range.gradients.device() == device,
                       "{}: shard = parameters gathers on one device, and there are parameters on {} and on {}; take "
                       "shard = gradients there",
                       link.wrapper_name(), device, range.gradients.device());
  }
  for (std::size_t b = 0; b < buckets.ranges().size(); ++b) {
    const tandem::detail::View values = buckets.values_of(b);
    const CutBucket cut(values.numel(), values.dtype, link.size());
    const std::int64_t own = cut.end(link.rank(), link.size()) - cut.begin(link.rank());
    const auto item = static_cast<std::int64_t>(item_size(values.dtype));
    const std::string purpose = fmt::format("the parameters of {} of {}", buckets.name(b), link.wrapper_name());
    all_.push_back({.values = values,
                    .gather = plan_gather_parts(link.group(), values, {.purpose = purpose, .advice = kGatherAdvice}),
                    .bytes_of_others = (values.numel() - own) * item});
    here_ += values.numel() * item;
  }
  const std::vector<BucketMember>& members = buckets.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Storage& storage = *members[i].parameter.unresolved()->view.storage;
    member_of_.emplace(&storage, i);
    storage.set_guard(this);
  }
  drop_all(nullptr);
  peak_ = here_;
}

ParameterParts::~ParameterParts() {
  StorageGuard* const guard = whole_scopes_ > 0 ? nullptr : &gone_guard;
  for (const auto& [storage, member] : member_of_) {
    storage->set_guard(guard);
  }
}

void ParameterParts::begin(Pass kind) {
  check<CaptureError>(tandem::detail::step_recorder() == nullptr,
                      "{}: a captured step cannot have shard = parameters, since its replays would use parameters "
                      "without gathering them; call the function itself, or take shard = gradients",
                      link_.wrapper_name());
  link_.check_open();
  check<AutogradError>(!is_open(),
                       "{}: a pass begins while another one uses the parameters (of another thread, or around a hook); "
                       "with shard = parameters the wrapper makes one pass at a time",
                       link_.wrapper_name());
  owner_ = std::this_thread::get_id();
  kind_ = kind;
  order_.clear();
  at_ = 0;
  for (Bucket& bucket : all_) {
    bucket.needed = Needed::no_more;
    bucket.used = false;
  }
  for (std::size_t b = 0; b < all_.size(); ++b) {
    all_[b].without_gradients = buckets_.ranges()[b].last - buckets_.ranges()[b].first;
  }
}

void ParameterParts::end() noexcept {
  const bool goes_on = kind_ == Pass::forward && core::thread_state().grad_enabled && !order_.empty();
  drop_all(goes_on ? &all_[order_.back()] : nullptr);
  if (!order_.empty()) {
    std::swap(latest_[static_cast<std::size_t>(kind_)], order_);
  }
  owner_ = std::thread::id();
}

void ParameterParts::note_gradient(std::size_t member) noexcept {
  Bucket& bucket = all_[buckets_.members()[member].bucket];
  if (--bucket.without_gradients > 0 || bucket.needed != Needed::for_gradients) {
    return;
  }
  bucket.needed = Needed::no_more;
  if (bucket.state == State::whole && whole_scopes_ == 0) {
    drop(bucket);
  }
}

void ParameterParts::begin_whole() {
  check<AutogradError>(!is_open() || owner_.load() == std::this_thread::get_id(),
                       "{}: whole_parameters() was called while a pass of another thread uses the parameters",
                       link_.wrapper_name());
  if (whole_scopes_ == 0) {
    link_.check_open();
    const SpanScope timed(Phase::reduce);
    for (Bucket& bucket : all_) {
      start(bucket);
    }
    for (Bucket& bucket : all_) {
      finish(bucket);
    }
  }
  ++whole_scopes_;
}

// A pass around the scope may have taken addresses within it.
void ParameterParts::end_whole() noexcept {
  if (--whole_scopes_ > 0) {
    return;
  }
  if (is_open()) {
    for (Bucket& bucket : all_) {
      bucket.needed = Needed::to_the_end;
    }
  } else {
    drop_all(nullptr);
  }
}

void ParameterParts::note_updated(const std::vector<std::size_t>& buckets) {
  const bool stays = whole_scopes_ > 0 || is_open();
  for (const std::size_t b : buckets) {
    Bucket& bucket = all_[b];
    finish(bucket);
    if (bucket.state == State::whole) {
      stays ? bucket.gather.run() : drop(bucket);
    }
  }
}

void ParameterParts::on_use(const Storage& storage) {
  const std::size_t member = member_of_.at(storage.is_alias() ? storage.parent() : &storage);
  check<CaptureError>(tandem::detail::step_recorder() == nullptr,
                      "{}: a captured function cannot use '{}', since its replays would use the parameter without "
                      "gathering it (shard = parameters); call the function itself, or take shard = gradients",
                      link_.wrapper_name(), buckets_.members()[member].name);
  if (whole_scopes_ > 0) {
    return;
  }
  if (owner_.load() != std::this_thread::get_id() || storage.is_alias() || is_in_replica()) {
    refuse(member);
  }
  const std::size_t b = buckets_.members()[member].bucket;
  Bucket& bucket = all_[b];
  note_need(bucket);
  if (std::exchange(bucket.used, true)) {
    return;
  }
  const SpanScope timed(Phase::reduce);
  const SpanScope traced({.name = "unshard"});
  // An op that reads one parameter and writes another needs both.
  make_room(b, kind_ == Pass::reading && !order_.empty() ? order_.back() : b);
  start(bucket);
  finish(bucket);
  order_.push_back(b);
  if (const std::optional<std::size_t> next = next_after(b)) {
    make_room(b, *next);
    start(all_[*next]);
  }
}

void ParameterParts::refuse(std::size_t member) const {
  const std::string& name = buckets_.members()[member].name;
  check<ConfigError>(!is_open(),
                     "{}: parameter '{}' was used by a replica, or by a thread that is not the one of the pass; with "
                     "shard = parameters a pass gathers parameters on its own thread, in one order on all ranks. Take "
                     "shard = gradients here",
                     link_.wrapper_name(), name);
  fail<ConfigError>(
      "{}: parameter '{}' was used outside of a pass through the wrapper, where rank {} has only its part "
      "(shard = parameters). Call ddp(x) in place of the module; to read or write parameters, let all ranks "
      "open a scope, `const auto whole = ddp.whole_parameters();`, or take state_dict()",
      link_.wrapper_name(), name, link_.names().rank(link_.rank()));
}

// The outer one of two module calls that need a bucket returns last.
void ParameterParts::note_need(Bucket& bucket) const noexcept {
  const core::ModuleScope* const scope = core::thread_state().scope;
  if (kind_ == Pass::backward) {
    const bool ends = bucket.without_gradients > 0 && bucket.needed != Needed::to_the_end;
    bucket.needed = ends ? Needed::for_gradients : Needed::to_the_end;
  } else if (kind_ == Pass::forward && is_free(bucket)) {
    bucket.needed = scope != nullptr ? Needed::in_scope : Needed::to_the_end;
    bucket.scope = scope;
    bucket.path = scope != nullptr ? scope->path : nullptr;
  }
}

bool ParameterParts::is_free(const Bucket& bucket) const noexcept {
  return bucket.needed == Needed::no_more ||
         (bucket.needed == Needed::in_scope && !is_within(bucket.scope, bucket.path));
}

// A pass that leaves the latest order finds its place again at the bucket's next use there.
std::optional<std::size_t> ParameterParts::next_after(std::size_t bucket) {
  const std::vector<std::size_t>& latest = latest_[static_cast<std::size_t>(kind_)];
  const auto found = std::find(latest.begin() + static_cast<std::ptrdiff_t>(at_), latest.end(), bucket);
  if (found == latest.end()) {
    return std::nullopt;
  }
  at_ = static_cast<std::size_t>(found - latest.begin()) + 1;
  return at_ < latest.size() ? std::optional(latest[at_]) : std::nullopt;
}

void ParameterParts::start(Bucket& bucket) {
  if (bucket.state == State::part) {
    bucket.gather.start();
    bucket.state = State::coming;
    here_ += bucket.bytes_of_others;
    peak_ = std::max(peak_, here_);
  }
}

void ParameterParts::finish(Bucket& bucket) {
  if (bucket.state == State::coming) {
    bucket.gather.wait();
    bucket.state = State::whole;
  }
}

// Buckets that nobody needs now go, but for `bucket` and `other`.
void ParameterParts::make_room(std::size_t bucket, std::size_t other) {
  for (std::size_t b = 0; b < all_.size(); ++b) {
    if (b != bucket && b != other && is_free(all_[b])) {
      finish(all_[b]);
      drop(all_[b]);
    }
  }
}

void ParameterParts::drop(Bucket& bucket) noexcept {
  if (bucket.state == State::part) {
    return;
  }
  drop_other_parts(bucket.values, link_.rank(), link_.size());
  bucket.state = State::part;
  bucket.used = false;
  here_ -= bucket.bytes_of_others;
}

// An exchange that fails has ended the group, whose next call tells the error.
void ParameterParts::drop_all(const Bucket* but) noexcept {
  for (Bucket& bucket : all_) {
    try {
      finish(bucket);
    } catch (const Error&) {
    }
    if (&bucket != but && whole_scopes_ == 0) {
      drop(bucket);
    }
  }
}

}  // namespace tandem::inline v0::parallel
