#include <tandem/parallel/job/process_group_guard.h>

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/core/failpoint.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>
#include <tandem/parallel/comm/nccl/nccl.h>
#include <tandem/parallel/job/joined_group.h>
#include <tandem/parallel/job/membership.h>
#include <tandem/parallel/job/spawn.h>
#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/tls.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::parallel {

namespace {

std::atomic<bool> joined{false};

MeetingPlace place_of(const InitOptions& options) {
  const InitMethod method = parse_init_method(options.init_method);
  const WorldInfo world = read_world(method, {.rank = options.rank, .world_size = options.world_size});
  // The launcher of an elastic job tells the ranks of a loss in their generation's store, to which only run_elastic()
  // connects. Other ranks would wait for the lost one.
  check<ConfigError>(!world.store_is_hosted || !process_environment(kElasticVariable),
                     "init_process_group: under --elastic a program calls parallel::run_elastic() with a function "
                     "that does the ranks' work; do so, or start the job without --elastic");
  return {.method = method, .world = world, .token = options.token ? options.token : JobToken::from_environment()};
}

}  // namespace

std::vector<BackendInfo> backends() {
  const std::string gpus = cuda::is_available() ? "CPU devices and GPUs" : "CPU devices";
  const std::string no_nccl = why_nccl_is_unavailable();
  return {
      {"local", true, fmt::format("ranks as threads of one process, on {}", gpus)},
      {"gloo", has_gloo(),
       has_gloo() ? fmt::format("ranks as processes on one or many hosts, on {}", gpus)
                  : "built without Gloo: apt-get install libgloo-dev, and build tandem again in a fresh build folder"},
      {"nccl", no_nccl.empty(), no_nccl.empty() ? "ranks as processes, on a GPU each" : no_nccl},
  };
}

struct ProcessGroupGuard::Job {
  JoinedGroup joined;
  RankContext context;

  explicit Job(const InitOptions& options) : joined(options, place_of(options)), context{&joined.group()} {}
};

ProcessGroupGuard::ProcessGroupGuard(const InitOptions& options) {
  check<ConfigError>(!is_initialized(),
                     "init_process_group: this {} a rank already; one process is one rank of one job, and ranks of "
                     "spawn() have their group",
                     joined ? "process is" : "thread is");
  check<ConfigError>(!joined.exchange(true), "init_process_group: another thread of this process is at it");
  try {
    try {
      check_options(options);
      job_ = std::make_unique<Job>(options);
    } catch (const StoreError& error) {
      throw error_of(error);
    }
  } catch (...) {
    joined = false;
    throw;
  }
  Generator& generator = current_generator();
  detail::seed_as_rank(generator, generator.seed(), generator.offset(), job_->joined.world().rank);
  set_process_rank(&job_->context);
}

ProcessGroupGuard::~ProcessGroupGuard() {
  core::failpoint("leave");
  set_process_rank(nullptr);
  job_.reset();
  joined = false;
}

ProcessGroup& ProcessGroupGuard::group() const noexcept { return job_->joined.group(); }

const WorldInfo& ProcessGroupGuard::world() const noexcept { return job_->joined.world(); }

namespace {

struct TheGuard {
  TheGuard() { load_tls(); }  // loaded first, so OpenSSL outlives the guard
  std::mutex mutex;
  std::unique_ptr<ProcessGroupGuard> guard;
};

// Created by its first use, and so destroyed before the objects that the guard needs.
TheGuard& the_guard() {
  static TheGuard guard;
  return guard;
}

// Handles exit() in the middle of a job: the other ranks must not mistake it for a goodbye. Runs before the guard's
// destructor.
void tell_of_exit(int status, void*) {
  TheGuard& the = the_guard();
  const std::unique_lock lock(the.mutex, std::try_to_lock);
  if (status != 0 && lock && the.guard != nullptr) {
    the.guard->group().abort(fmt::format("its process (pid {}) ended with exit code {}", ::getpid(), status));
  }
}

}  // namespace

void init_process_group(const InitOptions& options) {
  TheGuard& the = the_guard();
  const std::lock_guard lock(the.mutex);
  [[maybe_unused]] static const int registered = ::on_exit(tell_of_exit, nullptr);
  the.guard = std::make_unique<ProcessGroupGuard>(options);
}

void destroy_process_group() {
  TheGuard& the = the_guard();
  const std::lock_guard lock(the.mutex);
  check<ConfigError>(the.guard != nullptr, "destroy_process_group: there is none; init_process_group() makes it");
  the.guard.reset();
}

}  // namespace tandem::inline v0::parallel
