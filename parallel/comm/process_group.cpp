#include <tandem/parallel/comm/process_group.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <string_view>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/hash.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/call_builder.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/partner_totals.h>
#include <tandem/tensor/idle_gpus.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using detail::CallBuilder;
using detail::Operation;
using tandem::detail::View;
using Kind = CollectiveKind;

namespace {

constexpr std::chrono::hours kLongestTimeout(24 * 365);  // a longer timeout might overflow the clock

Work submit(const std::shared_ptr<detail::CommQueue>& queue, CallBuilder& call, bool async_op) {
  std::shared_ptr<Operation> operation = call.finish();
  async_op ? queue->start(operation) : queue->run(operation);
  return {queue, std::move(operation)};
}

Work send_to(const std::shared_ptr<detail::CommQueue>& queue, const Tensor& tensor, int dst, int tag, bool async_op) {
  CallBuilder call(queue->backend(), Kind::send, "send", tensor);
  call.set_peer("dst", dst, tag);
  call.reads(tensor);
  return submit(queue, call, async_op);
}

Work receive_from(const std::shared_ptr<detail::CommQueue>& queue, const Tensor& tensor, int src, int tag,
                  bool async_op) {
  CallBuilder call(queue->backend(), Kind::recv, "recv", tensor);
  call.set_peer("src", src, tag);
  call.writes(tensor);
  return submit(queue, call, async_op);
}

// Compares the call across ranks, and leaves it to be repeated.
PlannedCollective plan(const std::shared_ptr<detail::CommQueue>& queue, CallBuilder& call, PlanName name) {
  std::shared_ptr<Operation> operation = call.finish();
  operation->call.planned = true;
  operation->call.tag = -1;
  operation->runs = false;
  queue->run(operation);
  operation->call.tag = static_cast<std::int32_t>(operation->call.sequence);  // the plan's number
  queue->names()->note_plan(operation->call.tag, std::move(name));
  operation->compared = false;
  operation->runs = true;
  return {queue, std::move(operation)};
}

Tensor dense(const View& memory, const char* name) {
  check<ShapeError>(memory.is_contiguous(), "{}: the memory {} is not dense", name, memory.sizes);
  return Tensor(memory);
}

// This rank's part of one-dimensional memory.
Tensor own_part(const Tensor& memory, const Backend& backend, const char* name) {
  check<ShapeError>(memory.dim() == 1 && memory.numel() % backend.size() == 0,
                    "{}: the memory {} does not go into {} equal parts, one for each rank", name, memory.shape(),
                    backend.size());
  const std::int64_t count = memory.numel() / backend.size();
  return Tensor(tandem::detail::narrow(memory.raw(), 0, backend.rank() * count, count));
}

// A hash that tells sets of ranks apart when calls are compared.
std::int32_t hash_of(const std::vector<int>& ranks) {
  const std::string_view bytes(reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int));
  return static_cast<std::int32_t>(core::fnv1a(bytes));
}

std::atomic<const RankContext*> process_rank{nullptr};

const RankContext* context() noexcept {
  const RankContext* of_thread = core::thread_state().rank;
  return of_thread != nullptr ? of_thread : process_rank.load(std::memory_order_acquire);
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Backend> backend, const ProcessGroupOptions& options)
    : queue_(std::make_shared<detail::CommQueue>(std::move(backend))), exceptions_(std::uncaught_exceptions()) {
  set_timeout(options.timeout);
  tandem::detail::idle_gpus().note_parallel();
}

ProcessGroup::~ProcessGroup() { queue_->close(std::uncaught_exceptions() > exceptions_); }

std::shared_ptr<autograd::StepPartners> ProcessGroup::partners() {
  if (partners_ == nullptr) {
    partners_ = std::make_shared<PartnerTotals>(*this, "the layers that the group divides");
  }
  return partners_;
}

int ProcessGroup::rank() const noexcept { return queue_->backend().rank(); }

int ProcessGroup::size() const noexcept { return queue_->backend().size(); }

std::string_view ProcessGroup::backend() const noexcept { return queue_->backend().name(); }

std::chrono::milliseconds ProcessGroup::timeout() const { return queue_->timeout(); }

void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) {
  check<ConfigError>(timeout.count() > 0,
                     "process group: a timeout of {} ms; it must be more than 0, since no wait is without an end",
                     timeout.count());
  queue_->set_timeout(std::min<std::chrono::milliseconds>(timeout, kLongestTimeout));
}

Work ProcessGroup::broadcast(const Tensor& tensor, int src, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::broadcast, "broadcast", tensor);
  call.set_root("src", src);
  call.is_root() ? call.reads(tensor) : call.writes(tensor);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::all_reduce, "all_reduce", tensor);
  call.set_op(op);
  call.updates(tensor);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::reduce(const Tensor& tensor, int dst, ReduceOp op, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::reduce, "reduce", tensor);
  call.set_root("dst", dst);
  call.set_op(op);
  call.is_root() ? call.updates(tensor) : call.reads(tensor);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::all_gather, "all_gather", tensor);
  call.reads(tensor);
  call.writes("tensor_list", tensor_list);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::all_gather, "all_gather_into_tensor", input);
  call.reads(input);
  call.writes_joined("output", output);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op,
                                  bool async_op) {
  CallBuilder call(queue_->backend(), Kind::reduce_scatter, "reduce_scatter", output);
  call.set_op(op);
  call.reads("input_list", input_list);
  call.writes(output);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::reduce_scatter, "reduce_scatter_tensor", output);
  call.set_op(op);
  call.reads_joined("input", input);
  call.writes(output);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, int dst, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::gather, "gather", tensor);
  call.set_root("dst", dst);
  call.reads(tensor);
  if (call.is_root()) {
    call.writes("gather_list", gather_list);
  } else {
    check<ConfigError>(gather_list.empty(), "gather: gather_list is for rank {}, the destination, alone", dst);
  }
  return submit(queue_, call, async_op);
}

Work ProcessGroup::scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, int src, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::scatter, "scatter", tensor);
  call.set_root("src", src);
  if (call.is_root()) {
    call.reads("scatter_list", scatter_list);
  } else {
    check<ConfigError>(scatter_list.empty(), "scatter: scatter_list is for rank {}, the source, alone", src);
  }
  call.writes(tensor);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::all_to_all(const std::vector<Tensor>& output_list, const std::vector<Tensor>& input_list,
                              bool async_op) {
  check<ConfigError>(!input_list.empty(), "all_to_all: input_list is empty; expected {} tensors, one for each rank",
                     size());
  CallBuilder call(queue_->backend(), Kind::all_to_all, "all_to_all", input_list.front());
  call.reads("input_list", input_list);
  call.writes("output_list", output_list);
  return submit(queue_, call, async_op);
}

Work ProcessGroup::all_to_all_single(const Tensor& output, const Tensor& input, bool async_op) {
  CallBuilder call(queue_->backend(), Kind::all_to_all, "all_to_all_single", input);
  check<ShapeError>(input.dim() > 0 && input.size(0) % size() == 0,
                    "all_to_all_single: the first dimension of {} does not go into {} equal parts, one for each rank",
                    input.shape(), size());
  call.set_part(input.numel() / size());
  call.reads(input);
  call.writes(output);
  return submit(queue_, call, async_op);
}

void ProcessGroup::send(const Tensor& tensor, int dst, int tag) { send_to(queue_, tensor, dst, tag, false); }

Work ProcessGroup::isend(const Tensor& tensor, int dst, int tag) { return send_to(queue_, tensor, dst, tag, true); }

void ProcessGroup::recv(const Tensor& tensor, int src, int tag) { receive_from(queue_, tensor, src, tag, false); }

Work ProcessGroup::irecv(const Tensor& tensor, int src, int tag) {
  return receive_from(queue_, tensor, src, tag, true);
}

Work ProcessGroup::barrier(bool async_op) {
  CallBuilder call(queue_->backend(), Kind::barrier, "barrier");
  return submit(queue_, call, async_op);
}

std::unique_ptr<ProcessGroup> ProcessGroup::new_group(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  check<ConfigError>(!ranks.empty() && ranks.front() >= 0 && ranks.back() < size(),
                     "new_group: expected some of the ranks 0 to {}", size() - 1);
  check<ConfigError>(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(), "new_group: a rank is named twice");
  CallBuilder call(queue_->backend(), Kind::new_group, "new_group");
  const std::shared_ptr<Operation> operation = call.finish();
  Collective& record = operation->call;
  record.tag = hash_of(ranks);
  record.root = static_cast<std::int32_t>(ranks.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(ranks.size(), kMaxDims); ++i) {
    record.shape.push_back(ranks[i]);
  }
  operation->members = std::move(ranks);
  queue_->run(operation);
  return operation->split
             ? std::make_unique<ProcessGroup>(std::move(operation->split), ProcessGroupOptions{.timeout = timeout()})
             : nullptr;
}

PlannedCollective ProcessGroup::plan_all_reduce(const View& memory, ReduceOp op, PlanName name) {
  const Tensor tensor = dense(memory, "plan_all_reduce");
  CallBuilder call(queue_->backend(), Kind::all_reduce, "plan_all_reduce", tensor);
  call.set_op(op);
  call.updates(tensor);
  return plan(queue_, call, std::move(name));
}

PlannedCollective ProcessGroup::plan_reduce_scatter(const View& memory, ReduceOp op, PlanName name) {
  const Tensor tensor = dense(memory, "plan_reduce_scatter");
  const Tensor part = own_part(tensor, queue_->backend(), "plan_reduce_scatter");
  CallBuilder call(queue_->backend(), Kind::reduce_scatter, "plan_reduce_scatter", part);
  call.set_op(op);
  call.reads_joined("memory", tensor);
  call.writes(part);
  return plan(queue_, call, std::move(name));
}

PlannedCollective ProcessGroup::plan_all_gather(const View& memory, PlanName name) {
  const Tensor tensor = dense(memory, "plan_all_gather");
  const Tensor part = own_part(tensor, queue_->backend(), "plan_all_gather");
  CallBuilder call(queue_->backend(), Kind::all_gather, "plan_all_gather", part);
  call.reads(part);
  call.writes_joined("memory", tensor);
  return plan(queue_, call, std::move(name));
}

PlannedCollective ProcessGroup::plan_broadcast(const View& memory, int src, PlanName name) {
  const Tensor tensor = dense(memory, "plan_broadcast");
  CallBuilder call(queue_->backend(), Kind::broadcast, "plan_broadcast", tensor);
  call.set_root("src", src);
  call.is_root() ? call.reads(tensor) : call.writes(tensor);
  return plan(queue_, call, std::move(name));
}

void ProcessGroup::wait_all() { queue_->wait_all(); }

void ProcessGroup::abort(std::string_view reason) { queue_->abort(reason); }

void set_process_rank(const RankContext* context) noexcept { process_rank.store(context, std::memory_order_release); }

bool is_initialized() noexcept { return context() != nullptr; }

bool is_survivable(const CommError& error, int rank) {
  const CommFault fault = error.details().fault;
  return (fault == CommFault::peer_lost || fault == CommFault::aborted) && error.details().rank != rank;
}

void check_not_elastic(std::string_view what, std::string_view part) {
  check<ConfigError>(elastic_rank() == nullptr,
                     "{}: in an elastic job a lost rank would take {} along, and the others could not go on. Start the "
                     "job without --elastic; --max-restarts and a checkpoint::Run survive a loss, too",
                     what, part);
}

ElasticRank* elastic_rank() noexcept {
  const RankContext* rank = context();
  return rank == nullptr ? nullptr : rank->elastic;
}

ProcessGroup& default_group() {
  const RankContext* rank = context();
  check<ConfigError>(rank != nullptr,
                     "default_group: this thread belongs to no rank. Join the job of a launcher with "
                     "parallel::ProcessGroupGuard, or start ranks with parallel::spawn(n, fn), which runs fn as each "
                     "of them [TDM-E603]");
  return *rank->group;
}

int get_rank() { return default_group().rank(); }

int get_world_size() { return default_group().size(); }

}  // namespace tandem::inline v0::parallel
