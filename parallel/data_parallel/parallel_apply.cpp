#include <tandem/parallel/data_parallel/parallel_apply.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_pool.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

namespace {

// The seed of a replica. It does not depend on threads, and replica 0 draws the numbers that the caller would draw.
std::uint64_t seed_of_replica(std::uint64_t seed, std::size_t index) { return seed + 0x9e3779b97f4a7c15U * index; }

// A block of random numbers reserved against draws by other threads. Unused numbers are given back.
constexpr std::uint64_t kMostDrawn = std::uint64_t{1} << 40;

std::exception_ptr with_context(std::exception_ptr failure, const ReplicaInfo& replica) {
  try {
    std::rethrow_exception(failure);
  } catch (Error& error) {
    error.add_context(fmt::format("in replica {} of {}, on {}", replica.index, replica.count, replica.device));
    return std::current_exception();
  } catch (...) {
    return failure;
  }
}

}  // namespace

namespace detail {

void leave_frame(Tensor& result) {
  if (result.defined() && result.get() != result.unresolved()) {
    result = Tensor(core::Ref<tandem::detail::TensorImpl>(result.get()));
  }
}

std::optional<ReplicaInfo>& failed_replica() noexcept {
  thread_local std::optional<ReplicaInfo> replica;
  return replica;
}

namespace {

// Makes a failed replay look like a failed call.
tandem::detail::LaneFailure describe_failures(Replicas& replicas, std::size_t count) {
  std::vector<ReplicaInfo> infos;
  for (std::size_t k = 0; k < count; ++k) {
    infos.push_back(replicas.frame(k).replica());
  }
  return [infos = std::move(infos)](std::size_t k, std::exception_ptr failure) {
    failed_replica() = infos[k];
    return with_context(std::move(failure), infos[k]);
  };
}

}  // namespace

void run_replicas(Replicas& replicas, std::size_t count, core::FunctionRef<void(std::size_t)> body) {
  tandem::detail::host_work("parallel_apply", [] { failed_replica().reset(); });
  check<ConfigError>(count <= replicas.size(), "parallel_apply: {} inputs for {} replicas", count, replicas.size());
  if (count == 0) {
    return;
  }
  tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder();
  Generator& drawn_from = current_generator();
  const std::uint64_t seed = drawn_from.seed();
  // A replay reserves what all draws of the step took, and the replicas' draws count with them.
  const std::uint64_t offset = recorder == nullptr ? drawn_from.reserve(kMostDrawn) : drawn_from.offset();
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::uint64_t> drawn(count);
  const auto run_replica = [&](std::size_t k) {
    core::Frame& frame = replicas.frame(k);
    Generator generator(seed_of_replica(seed, k), drawn_from);
    generator.set_offset(offset);
    const GeneratorScope draws(generator);
    const core::FrameScope active(frame);
    const core::DeviceScope device(frame.replica().device);
    const std::string name = tandem::detail::has_span_listeners() ? to_string(frame.replica().device) : "";
    const SpanScope traced({.name = "replica", .detail = name});
    try {
      body(k);
    } catch (...) {
      failures[k] = with_context(std::current_exception(), frame.replica());
    }
    drawn[k] = generator.offset() - offset;
  };
  if (recorder == nullptr) {
    core::ThreadPool::instance().for_each_lane(static_cast<std::int64_t>(count),
                                               [&](std::int64_t lane) { run_replica(static_cast<std::size_t>(lane)); });
  } else {
    recorder->run_lanes(count, run_replica, describe_failures(replicas, count));
  }
  const std::uint64_t reserved = recorder == nullptr ? kMostDrawn : 0;
  if (drawn_from.offset() == offset + reserved) {  // else another thread has drawn since
    drawn_from.set_offset(offset + *std::max_element(drawn.begin(), drawn.end()));
  }
  for (std::size_t k = 0; k < count; ++k) {
    if (failures[k]) {
      failed_replica() = replicas.frame(k).replica();
      std::rethrow_exception(failures[k]);
    }
  }
}

}  // namespace detail

ReplicaInfo replica() noexcept {
  const core::ThreadState& state = core::thread_state();
  return state.frame != nullptr ? state.frame->replica() : ReplicaInfo{0, 1, state.device};
}

std::optional<ReplicaInfo> last_failure() noexcept { return detail::failed_replica(); }

}  // namespace tandem::inline v0::parallel
