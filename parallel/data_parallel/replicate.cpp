#include <tandem/parallel/data_parallel/replicate.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include <tandem/autograd/parameter.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/data_parallel/replicate_node.h>
#include <tandem/parallel/data_parallel/stand_ins.h>
#include <tandem/parallel/first_steps.h>
#include <tandem/tensor/idle_gpus.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using tandem::detail::View;

namespace {

// Warns of GPUs of different size. Each gets the same number of rows, so the weakest sets the pace and the memory
// limit.
void warn_of_imbalance(const std::vector<Device>& devices) {
  if (devices[0].type != DeviceType::cuda) {
    return;
  }
  std::vector<cuda::DeviceProperties> gpus;
  for (const Device device : devices) {
    gpus.push_back(cuda::device_properties(device.index));
  }
  static std::atomic<bool> said{false};
  if (const auto [weak, strong] = detail::find_imbalance(gpus); weak != strong && !said.exchange(true)) {
    core::warn(
        fmt::format("replicate: {} has less than three quarters of the memory or of the multiprocessors of {}, and "
                    "gets as many rows: leave it out",
                    devices[weak], devices[strong]));
  }
}

void check_devices(const std::vector<Device>& devices, bool allow_duplicates) {
  check<ConfigError>(!devices.empty(), "replicate: no devices are given");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    require_available(devices[i]);
    check<DeviceError>(devices[i].type == devices[0].type,
                       "replicate: {} and {} are of different kinds; a module is replicated on CPU devices or on GPUs",
                       devices[0], devices[i]);
    const auto here = devices.begin() + static_cast<std::ptrdiff_t>(i);
    check<ConfigError>(std::find(devices.begin(), here, *here) == here || allow_duplicates,
                       "replicate: {} is listed twice; two replicas there would only share its time. For a test, set "
                       "allow_duplicate_devices [TDM-E602]",
                       devices[i]);
  }
}

void check_outermost() {
  check<ConfigError>(core::thread_state().frame == nullptr,
                     "DataParallel: called within a replica of another one; wrap the outer module alone");
}

}  // namespace

struct Replicas::Impl {
  struct Replica {
    explicit Replica(const core::ReplicaInfo& info) : frame(info), parameters(info.device), buffers(info.device) {}
    core::Frame frame;
    StandIns parameters;  // unused on the module's device
    StandIns buffers;     // unused by replica 0
  };

  nn::ModuleRef module;
  std::vector<Device> devices;
  std::deque<Replica> replicas;
  std::vector<Tensor> parameters;
  std::vector<Tensor> buffers;
  std::shared_ptr<const GradientLayout> layout;
  std::int64_t copied = 0;
  tandem::detail::Watched life;  // a captured step that calls these replicas ends with them
  std::optional<FirstSteps> first_steps;
  std::mutex in_use;  // not fork-safe: a forked child could not use half-bound frames anyway

  Impl(nn::ModuleRef m, std::vector<Device> d) : module(std::move(m)), devices(std::move(d)) { unbind(); }

  void unbind() {
    replicas.clear();
    for (const Device device : devices) {
      replicas.emplace_back(
          core::ReplicaInfo{static_cast<int>(replicas.size()), static_cast<int>(devices.size()), device});
    }
    layout = nullptr;
  }

  static bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::ranges::equal(a, b, {}, &Tensor::unresolved, &Tensor::unresolved);
  }

  // Updates the lists, because the module may have new parameters.
  void find_slots() {
    std::vector<Tensor> p = module.parameters();
    std::vector<Tensor> b = module.buffers();
    if (!same(p, parameters) || !same(b, buffers)) {
      parameters = std::move(p);
      buffers = std::move(b);
      unbind();
    }
  }

  void check_placement() const {
    const auto on_device = [&](const Tensor& slot) { return slot.device() == devices[0]; };
    if (std::ranges::all_of(parameters, on_device) && std::ranges::all_of(buffers, on_device)) {
      return;
    }
    for (const auto& [what, slots] :
         {std::pair("parameter", module.named_parameters()), std::pair("buffer", module.named_buffers())}) {
      for (const auto& [name, slot] : slots) {
        check<DeviceError>(on_device(slot),
                           "DataParallel: {} '{}' is on {}, the first device is {}: move the module there, "
                           "model.to(\"{}\") [TDM-E601]",
                           what, name, slot.device(), devices[0], devices[0]);
      }
    }
  }

  void bind_buffers(Replica& replica) {
    copied += replica.buffers.copy(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      replica.frame.bind(buffers[i], replica.buffers[i]);
    }
  }

  // Binds the parameters. Those that get gradients are results of `node` from `result` on; `node` is null unless
  // gradients are recorded.
  void bind_parameters(Replica& replica, const core::Ref<autograd::Node>& node, std::uint32_t result) {
    const Device device = replica.frame.replica().device;
    if (device == devices[0]) {
      return;  // the module's own parameters are there
    }
    if (tandem::detail::share_memory(devices[0], device)) {
      replica.parameters.share(parameters);
    } else {
      copied += replica.parameters.copy(parameters);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool is_result = node && parameters[i].requires_grad();
      Tensor value = is_result ? Tensor(replica.parameters[i].raw()) : replica.parameters[i];
      if (is_result) {
        autograd::set_history(value, node, result++);
      }
      replica.frame.bind(parameters[i], value);
    }
  }

  void check_buffers() const {
    if (std::ranges::none_of(buffers, &Tensor::requires_grad)) {
      return;
    }
    for (const auto& [name, buffer] : module.named_buffers()) {
      check<ConfigError>(!buffer.requires_grad(),
                         "DataParallel: buffer '{}' requires a gradient, which would be that of replica 0 alone: "
                         "register it as a parameter, or keep it out of the graph (requires_grad_(false), detach())",
                         name);
    }
  }

  core::Ref<autograd::Node> make_node(std::size_t count) {
    std::vector<Tensor> trained;
    if (core::thread_state().grad_enabled && count > 1) {
      std::ranges::copy_if(parameters, std::back_inserter(trained), &Tensor::requires_grad);
    }
    if (trained.empty()) {
      return nullptr;
    }
    if (layout == nullptr || !same(trained, layout->parameters()) || !layout->holds()) {
      layout = std::make_shared<GradientLayout>(std::move(trained));
    }
    return core::Ref<autograd::Node>(new ReplicateNode(layout, count - 1));
  }

  void update(std::size_t count) {
    life.watch();
    find_slots();
    check_placement();
    if (count > 1) {
      check_buffers();
    }
    const core::Ref<autograd::Node> node = make_node(count);
    for (std::size_t k = 1; k < count; ++k) {
      bind_parameters(replicas[k], node, node ? static_cast<std::uint32_t>((k - 1) * layout->parameters().size()) : 0);
      bind_buffers(replicas[k]);
    }
  }
};

std::pair<std::size_t, std::size_t> detail::find_imbalance(const std::vector<cuda::DeviceProperties>& gpus) {
  const auto worst = [&](auto number) {
    const auto [weak, strong] = std::ranges::minmax_element(gpus, {}, number);
    const auto at = [&](auto gpu) { return static_cast<std::size_t>(gpu - gpus.begin()); };
    const bool found = 4 * ((*weak).*number) < 3 * ((*strong).*number);
    return found ? std::pair(at(weak), at(strong)) : std::pair<std::size_t, std::size_t>();
  };
  const auto by_memory = worst(&cuda::DeviceProperties::total_memory);
  return by_memory.first != by_memory.second ? by_memory : worst(&cuda::DeviceProperties::multi_processor_count);
}

Replicas::Replicas(nn::ModuleRef module, std::vector<Device> devices, bool allow_duplicates) {
  check<CaptureError>(
      tandem::detail::step_recorder() == nullptr,
      "replicate: a captured step cannot make replicas, because they would be gone after the step; make "
      "a DataParallel before the step, and call it there");
  check_devices(devices, allow_duplicates);
  tandem::detail::idle_gpus().note_parallel();
  warn_of_imbalance(devices);
  const bool is_on_cpu = devices.front().type == DeviceType::cpu;
  const bool is_parallel = devices.size() > 1;
  impl_ = std::make_unique<Impl>(std::move(module), std::move(devices));
  if (is_on_cpu && is_parallel && !is_initialized()) {  // ranks look at their steps together
    impl_->first_steps.emplace(nullptr);
  }
}
Replicas::~Replicas() = default;
Replicas::Replicas(Replicas&&) noexcept = default;
Replicas& Replicas::operator=(Replicas&&) noexcept = default;

std::unique_lock<std::mutex> Replicas::lock() {
  check_outermost();
  return std::unique_lock(impl_->in_use);
}

void Replicas::update(std::size_t count) {
  check_outermost();
  core::set_step_fact(Fact::devices, static_cast<double>(size()));
  if (impl_->first_steps && core::thread_state().grad_enabled) {
    tandem::detail::host_work("DataParallel::first_steps", [impl = impl_.get()] { impl->first_steps->after_pass(); });
  }
  impl_->update(std::min(count, size()));
}

std::size_t Replicas::size() const noexcept { return impl_->devices.size(); }
const std::vector<Device>& Replicas::devices() const noexcept { return impl_->devices; }
core::Frame& Replicas::frame(std::size_t index) { return impl_->replicas.at(index).frame; }
std::int64_t Replicas::bytes_copied() const noexcept { return impl_->copied; }

Replicas replicate(const nn::ModuleRef& module, const std::vector<Device>& devices) {
  Replicas replicas(module, devices);
  replicas.update(replicas.size());
  return replicas;
}

}  // namespace tandem::inline v0::parallel
