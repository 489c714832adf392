#include <tandem/parallel/distributed/reducer.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/parameter.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/rank.h>
#include <tandem/parallel/distributed/buffer_sync.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/model_check.h>
#include <tandem/parallel/replica.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

// The first that has a wrapper; empty: none has.
std::string wrapped_parameter(const nn::ModuleRef& module) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    if (leaf != nullptr && leaf->observer != nullptr) {
      return name;
    }
  }
  return "";
}

}  // namespace

/// What an output of the module goes through.
class Reducer::OutputNode final : public autograd::Node {
 public:
  OutputNode(std::shared_ptr<Reducer> reducer, std::int64_t samples, const Tensor& output)
      : Node("ddp", 1),
        seen_(reducer),
        reducer_(std::move(reducer)),
        samples_(samples),
        synced_(reducer_->local_scopes() == 0) {
    watch_passes();
    connect({&output});
  }
  void on_pass(const std::exception* failure) override {
    const std::shared_ptr<Reducer> reducer = seen_.lock();
    if (failure == nullptr) {
      reducer->begin_pass(*this, synced_, samples_);
    } else if (reducer != nullptr) {
      reducer->refuse_pass(*failure, synced_);
    }
  }
  void apply(autograd::Gradients& gradients) override { gradients.deliver(0, gradients.output(), false); }
  // A loss that is kept keeps no module from being wrapped again.
  void release() noexcept override { reducer_.reset(); }
  bool released() const noexcept override { return reducer_ == nullptr; }

 private:
  std::weak_ptr<Reducer> seen_;
  std::shared_ptr<Reducer> reducer_;  // until released
  std::int64_t samples_;
  bool synced_;
};

Tensor Reducer::attach(const Tensor& output, std::shared_ptr<Reducer> reducer, std::int64_t samples) {
  if (!output.defined() || !autograd::records({&output})) {
    return output;
  }
  Tensor result(output.raw());
  autograd::set_history(result, core::Ref<autograd::Node>(new OutputNode(std::move(reducer), samples, output)));
  return result;
}

Reducer::Reducer(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options)
    : module_(std::move(module)),
      group_(group),
      queue_(group.queue()),
      rank_(group.rank()),
      size_(group.size()),
      find_unused_(options.find_unused_parameters) {
  std::vector<std::string> lines = describe(module_);
  const std::string taken = wrapped_parameter(module_);
  if (!taken.empty()) {
    lines.insert(lines.begin(), fmt::format("parameter '{}' in another DistributedDataParallel already", taken));
  }
  check_same(group_, lines, "models",
             "All ranks must build the same model, and freeze the same parameters, before they wrap it");
  check<ConfigError>(
      taken.empty(),
      "DistributedDataParallel: parameter '{}' belongs to another DistributedDataParallel already; wrap a "
      "module once, or again when that wrapper and the losses computed through it are gone",
      taken);
  nn::NamedTensors trained;
  for (const auto& named : module_.named_parameters()) {
    named.second.requires_grad() ? trained.push_back(named) : frozen_.push_back(named.second);
  }
  check<ConfigError>(!trained.empty(),
                     "DistributedDataParallel: the module has no parameter that requires a gradient; use it as it is");
  check_same(group_,
             {fmt::format("bucket_cap_mb = {}, find_unused_parameters = {}, broadcast_buffers = {}, init_sync = {}",
                          options.bucket_cap_mb ? fmt::format("{}", *options.bucket_cap_mb) : "default", find_unused_,
                          options.broadcast_buffers, options.init_sync)},
             "options", "All ranks must pass the same options");
  buckets_ = make_buckets(trained, bucket_limits(group_, options.bucket_cap_mb));
  check_same(
      group_, describe(buckets_), "places of gradients",
      "Gradients lie in memory in the order in which an optimiser that was made before got the parameters: let it be "
      "the same on all ranks, or make optimisers after wrapping");
  if (options.init_sync && size_ > 1) {
    broadcast_state(group_, module_);
  }
  if (find_unused_) {
    used_ = zeros({2 * static_cast<std::int64_t>(buckets_.members.size()) + 1},
                  {.dtype = DType::i32, .device = Device(DeviceType::cpu, 0)});
  }
  if (size_ > 1) {
    for (const BucketRange& range : buckets_.ranges) {
      plans_.push_back(group_.plan_all_reduce(range.gradients, ReduceOp::avg));
    }
    turn_ = zeros({1}, {.dtype = DType::i32, .device = Device(DeviceType::cpu, 0)});
    compare_.emplace(group_.plan_all_reduce(turn_->raw(), ReduceOp::max));
    if (used_) {
      agree_.emplace(group_.plan_all_reduce(used_->raw(), ReduceOp::max));
    }
    if (options.broadcast_buffers) {
      buffers_ = std::make_unique<BufferSync>(module_.buffers(), options.init_sync);
    }
  }
  for (const BucketMember& member : buckets_.members) {
    arrived_.push_back(member.leaf->fresh() ? kBeforeWrapping : 0);
  }
  ready_.resize(buckets_.members.size());
  pending_.resize(buckets_.ranges.size());
  all_buffers_ = module_.buffers();
  structure_version_ = nn::detail::structure_version();
  for (const BucketMember& member : buckets_.members) {
    member.leaf->observer = this;
    member.leaf->note_change();  // a step that was captured before would go on without the others
  }
}

Reducer::~Reducer() {
  for (const BucketMember& member : buckets_.members) {
    member.leaf->observer = nullptr;
  }
}

void Reducer::set_comm_hook(CommHook hook) {
  check<ConfigError>(!hook_, "register_comm_hook: there is a hook already");
  hook_ = std::move(hook);
}

void Reducer::check_group() const {
  check<ConfigError>(
      !queue_->is_closed(),
      "DistributedDataParallel: its process group is gone; keep it (ProcessGroupGuard) for as long as the "
      "module is trained");
}

void Reducer::check_parameters() {
  check_group();
  for (const BucketMember& member : buckets_.members) {
    check<ConfigError>(member.leaf->place == member.place,
                       "DistributedDataParallel: parameter '{}' was moved to another device or dtype after the module "
                       "was wrapped; move it first, then wrap it",
                       member.name);
    check<ConfigError>(static_cast<bool>(member.parameter.unresolved()->history),
                       "DistributedDataParallel: parameter '{}' was frozen after the module was wrapped; freeze it on "
                       "all ranks, then wrap the module again",
                       member.name);
  }
  for (const Tensor& parameter : frozen_) {
    check<ConfigError>(!parameter.unresolved()->history,
                       "DistributedDataParallel: parameter '{}' requires a gradient since the module was wrapped; thaw "
                       "it on all ranks, then wrap the module again",
                       autograd::parameter_name(parameter));
  }
  if (nn::detail::structure_version() != structure_version_) {
    check_structure();
  }
}

// Some module of the process has changed.
void Reducer::check_structure() {
  const std::uint64_t version = nn::detail::structure_version();
  const nn::NamedTensors parameters = module_.named_parameters();
  const std::size_t then = buckets_.members.size() + frozen_.size();
  check<ConfigError>(parameters.size() == then,
                     "DistributedDataParallel: the module has {} parameters, and had {} when it was wrapped; build it "
                     "first, then wrap it",
                     parameters.size(), then);
  const auto among = [](const Tensor& one, const std::vector<Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.unresolved() == one.unresolved(); });
  };
  constexpr const char* kNew =
      "DistributedDataParallel: {} '{}' is another one than when the module was wrapped; replace layers first, then "
      "wrap the module";
  for (const auto& [name, parameter] : parameters) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    check<ConfigError>((leaf != nullptr && leaf->observer == this) || among(parameter, frozen_), kNew, "parameter",
                       name);
  }
  for (const auto& [name, buffer] : module_.named_buffers()) {
    check<ConfigError>(among(buffer, all_buffers_), kNew, "buffer", name);
  }
  structure_version_ = version;
}

namespace detail {

std::shared_ptr<Reducer> make_reducer(const nn::ModuleRef& module, const DistributedOptions& options) {
  check<ConfigError>(
      options.process_group.value_or(nullptr) != nullptr || !options.process_group,
      "DistributedDataParallel: process_group is null, as for a rank that is not in a sub-group; let only "
      "its members wrap the module, or leave it out for the default group");
  return std::make_shared<Reducer>(module, options.process_group ? **options.process_group : default_group(), options);
}

bool before_forward(Reducer& reducer) {
  check<ConfigError>(replica().count == 1,
                     "DistributedDataParallel: called within a replica of DataParallel; wrap the module that uses "
                     "DataParallel inside instead, or give each device a rank of its own");
  check<CaptureError>(tandem::detail::step_recorder() == nullptr,
                      "DistributedDataParallel: a captured step cannot talk to other ranks");
  if (!core::thread_state().grad_enabled) {
    return false;
  }
  reducer.check_parameters();
  return reducer.joins() != nullptr;
}

std::int64_t count_samples(Reducer& reducer, const std::vector<Shape>& inputs) {
  return reducer.joins()->samples_of(inputs);
}

Tensor attach(const Tensor& output, const std::shared_ptr<Reducer>& reducer, std::int64_t samples) {
  return Reducer::attach(output, reducer, samples);
}

int& local_scopes(Reducer& reducer) noexcept { return reducer.local_scopes(); }

void set_comm_hook(Reducer& reducer, CommHook hook) { reducer.set_comm_hook(std::move(hook)); }

}  // namespace detail

}  // namespace tandem::inline v0::parallel
