#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/shape.h>

namespace tandem::inline v0::parallel {

/// How the values of all ranks are combined into one. On bool, sum and max mean "or", product and min "and". avg takes
/// floating point only. 16-bit types are reduced in f32 and rounded once; integers wrap around. NCCL treats 16-bit
/// types and NaN differently: see nccl_backend().
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product };
/// The name in lower case: "sum", ...
TANDEM_API const char* to_string(ReduceOp op) noexcept;

/// The kinds of calls on a group.
enum class CollectiveKind : std::uint8_t {
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier,
  new_group
};
/// The number of kinds.
inline constexpr int kCollectiveKinds = static_cast<int>(CollectiveKind::new_group) + 1;
/// The name in lower case: "broadcast", ...
TANDEM_API const char* to_string(CollectiveKind kind) noexcept;

/// One rank's call as plain data of fixed size. Ranks compare these before data moves, and backends get them as
/// requests.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;  // kind of the call
  DType dtype = DType::f32;                       // type of the elements
  DeviceType device = DeviceType::cpu;            // kind of device of the rank's tensor
  ReduceOp op = ReduceOp::sum;                    // for reductions
  bool planned = false;                           // made as a plan; ranks do not compare each call
  std::int32_t root = -1;                         // source or destination; for send and recv the other rank
  std::int32_t tag = 0;        // of send and recv; a plan's number; for new_group a hash of its ranks
  std::int64_t sequence = -1;  // number within the group, from 0; -1 for send and recv
  Shape shape;                 // of the rank's tensor: the input, or the output of scatter and reduce_scatter

  /// Whether two ranks made the same call.
  friend bool operator==(const Collective&, const Collective&) = default;
};
static_assert(std::is_trivially_copyable_v<Collective>);

/// A short text: "all_reduce f32 [4] sum (#7)", "send i64 [2] to 1, tag 3".
TANDEM_API std::string to_string(const Collective& call);

/// Dense memory of one rank, on the call's device. `numel` is the number of elements that one rank gives or gets. `in`
/// of reduce_scatter, scatter (at the root) and all_to_all holds size() times as many, and so does `out` of all_gather,
/// gather (at the root) and all_to_all. `in` and `out` are the same memory or do not overlap, with one exception: the
/// smaller one may be the rank's own part of the larger one. Null where a rank has no input or output.
struct Buffers {
  const void* in = nullptr;  // read
  void* out = nullptr;       // written
  std::int64_t numel = 0;    // elements
  Device device = {};        // device of the memory
};

class GroupNames;

/// Start and deadline of a call, and what its errors need to know of its group.
struct CallTime {
  std::chrono::steady_clock::time_point start;     // start of the call
  std::chrono::steady_clock::time_point deadline;  // latest end of the call
  /// Whether the caller does nothing else meanwhile. Then active waiting takes no core from a computation of this rank.
  bool caller_waits = false;
  /// A wait for other ranks that lasts until then gets a line on stderr: tell_long_wait().
  mutable std::chrono::steady_clock::time_point line_due = std::chrono::steady_clock::time_point::max();
  /// The usual time of such a call; 0: unknown.
  std::chrono::steady_clock::duration usual = {};
  /// Names the group's ranks and calls in texts. Null: a group of all ranks, whose plans have no names.
  const GroupNames* names = nullptr;

  /// The next line is due when the call has lasted twice as long.
  void put_off_line(std::chrono::steady_clock::time_point now) const { line_due = now + (now - start); }
  /// Seconds since the start of the call.
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
};

}  // namespace tandem::inline v0::parallel
