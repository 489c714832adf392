#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/group_names.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {
class StepPartners;
}

namespace tandem::inline v0::parallel {

class ElasticRank;
class PartnerTotals;

/// Options of ProcessGroup.
struct ProcessGroupOptions {
  /// Time from a call to the CommError that names the missing rank. Must be more than 0; longer than a year counts as a
  /// year.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

/// A group of ranks that compute together, as one rank sees it: one object per rank. Names and argument order are those
/// of torch.distributed. All ranks make the same calls in the same order. Before data moves, the calls are compared
/// (kind, dtype, shape, reduce op, root, number). If they differ, every rank throws a CommError that lists all of them
/// side by side.
///
/// With `async_op` a call returns at once and the group's own thread runs it, in the order of calls. Call wait() before
/// touching its tensors. Without `async_op` the call is done when it returns, and its Work only keeps the interface
/// uniform. On GPUs "done" follows the order of streams (see Work): the call is ordered after the caller's current
/// stream, and that stream after the call.
///
/// Tensors may be of any dtype, empty, and not dense (they are packed then), on a device that the backend takes. Calls
/// are not differentiable. Written tensors count as changed in place, so that backward() notices. Leaves that require a
/// gradient may be written, as under NoGradGuard; results of recorded ops only under NoGradGuard.
///
/// Errors give ranks the numbers that they have in the whole job, also in a group of some ranks.
///
/// After any CommError the group is dead: every later call on every rank throws at once and names the first error.
/// Errors in a rank's own arguments (ShapeError, DTypeError, ConfigError, AutogradError) are thrown before other ranks
/// learn of the call and leave the group usable.
///
/// Thread safety: any thread may call. The order of calls must be the same on all ranks, so normally one thread calls.
class TANDEM_API ProcessGroup {
 public:
  /// Makes a group over `backend`; all ranks must make one. Throws ConfigError for a timeout of 0.
  explicit ProcessGroup(std::unique_ptr<Backend> backend, const ProcessGroupOptions& options = {});
  /// Finishes pending calls. If an exception is unwinding this rank, the other ranks are told instead that it is lost.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// The caller's rank, from 0.
  int rank() const noexcept;
  /// The number of ranks.
  int size() const noexcept;
  /// The name of the backend that carries the data: "local".
  std::string_view backend() const noexcept;
  /// See ProcessGroupOptions.
  std::chrono::milliseconds timeout() const;
  /// Sets the timeout of later calls. Throws ConfigError unless it is more than 0.
  void set_timeout(std::chrono::milliseconds timeout);

  /// Sets every rank's `tensor` to that of rank `src`.
  Work broadcast(const Tensor& tensor, int src, bool async_op = false);
  /// Sets every rank's `tensor` to the reduction of all: the same bits everywhere.
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, bool async_op = false);
  /// Like all_reduce(), but only rank `dst` gets the result; the other ranks' tensors are unchanged.
  Work reduce(const Tensor& tensor, int dst, ReduceOp op = ReduceOp::sum, bool async_op = false);
  /// Sets tensor_list[r] to rank r's `tensor`. All ranks must use one shape and dtype.
  Work all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op = false);
  /// Sets output[r] to rank r's `input`. `output` is [size(), input's shape...], or the inputs joined along the first
  /// dimension.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async_op = false);
  /// Sets every rank's `output` to the reduction of all ranks' input_list[rank()].
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op = ReduceOp::sum,
                      bool async_op = false);
  /// Like reduce_scatter(), for an `input` [size(), output's shape...], or joined along the first dimension.
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                             bool async_op = false);
  /// Sets gather_list[r] on rank `dst` to rank r's `tensor`. The other ranks pass no list.
  Work gather(const Tensor& tensor, const std::vector<Tensor>& gather_list = {}, int dst = 0, bool async_op = false);
  /// Sets every rank's `tensor` to rank src's scatter_list[rank()]. The other ranks pass no list.
  Work scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list = {}, int src = 0, bool async_op = false);
  /// Sets output_list[r] to rank r's input_list[rank()]. All ranks must use one shape and dtype.
  Work all_to_all(const std::vector<Tensor>& output_list, const std::vector<Tensor>& input_list, bool async_op = false);
  /// Like all_to_all(), for equal parts of the first dimension, whose size must be a multiple of size().
  Work all_to_all_single(const Tensor& output, const Tensor& input, bool async_op = false);
  /// Sends to one recv() with this tag on rank `dst`. Returns once `tensor` may be changed, whether received or not.
  void send(const Tensor& tensor, int dst, int tag = 0);
  /// Fills `tensor` with the first message that rank `src` sent with this tag. A different dtype or shape is a
  /// mismatch.
  void recv(const Tensor& tensor, int src, int tag = 0);
  /// Like send(), on the group's thread.
  Work isend(const Tensor& tensor, int dst, int tag = 0);
  /// Like recv(), on the group's thread. Later calls wait for it, except sends before the next collective.
  Work irecv(const Tensor& tensor, int src, int tag = 0);
  /// Returns when all ranks have called it.
  Work barrier(bool async_op = false);

  /// Makes a group of some of these ranks, numbered in ascending order. All ranks of this group call it with the same
  /// `ranks`; those not listed get null. The new group has this group's timeout.
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks);

  /// Makes an all-reduce that can be repeated. Ranks compare the call once, now, and not again; starting it allocates
  /// nothing. `memory` is dense. The gradient reducer uses it on ranges of a ParameterStore. Errors call it by `name`,
  /// which is the same on all ranks. A collective.
  PlannedCollective plan_all_reduce(const tandem::detail::View& memory, ReduceOp op = ReduceOp::sum,
                                    PlanName name = {});
  /// As plan_all_reduce(), for a reduce-scatter in place: `memory` has size() equal parts, and part rank() becomes the
  /// reduction of all ranks' parts of that number. The other parts are not written.
  PlannedCollective plan_reduce_scatter(const tandem::detail::View& memory, ReduceOp op = ReduceOp::sum,
                                        PlanName name = {});
  /// As plan_all_reduce(), for an all-gather in place: `memory` has size() equal parts, and each becomes that of the
  /// rank of its number.
  PlannedCollective plan_all_gather(const tandem::detail::View& memory, PlanName name = {});
  /// As plan_all_reduce(), for a broadcast: `memory` becomes that of rank `src`.
  PlannedCollective plan_broadcast(const tandem::detail::View& memory, int src, PlanName name = {});

  /// Blocks the host until all started calls are done, on GPUs as well. Throws the CommError of a call that was never
  /// waited for.
  void wait_all();
  /// Ends all pending and later calls, on every rank, with a CommError that gives `reason`. May be called from any
  /// thread.
  void abort(std::string_view reason);

  /// Internal: these ranks join numbers of the gradients of parameters that are divided among them.
  std::shared_ptr<autograd::StepPartners> partners();
  /// Called by DistributedDataParallel, which may outlive the group.
  const std::shared_ptr<detail::CommQueue>& queue() const noexcept { return queue_; }

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  int exceptions_;  // uncaught exceptions when the group was made
  std::shared_ptr<PartnerTotals> partners_;
};

/// Context shared by the threads that work for one rank. Where ranks are threads (spawn()), the pool, the lanes of a
/// backward pass and the loader's threads inherit it; threads that the program starts itself belong to no rank. Where
/// ranks are processes (ProcessGroupGuard), all threads share it.
struct RankContext {
  ProcessGroup* group;             // the group of all ranks
  ElasticRank* elastic = nullptr;  // of a job that goes on without the ranks it loses
};

/// Whether the calling thread belongs to a rank that has a default process group.
TANDEM_API bool is_initialized() noexcept;
/// The group of all ranks as the calling thread's rank sees it. Throws ConfigError if the rank has none.
TANDEM_API ProcessGroup& default_group();
/// The calling thread's rank in the default group. Throws like default_group().
TANDEM_API int get_rank();
/// The number of ranks in the default group. Throws like default_group().
TANDEM_API int get_world_size();

/// Internal: the calling thread's rank of an elastic job; null for other ranks.
ElasticRank* elastic_rank() noexcept;
/// Internal: sets the rank of all threads of this process that are no rank of their own; null: no rank.
void set_process_rank(const RankContext* context) noexcept;

}  // namespace tandem::inline v0::parallel
