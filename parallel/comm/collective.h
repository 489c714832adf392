#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/shape.h>

namespace tandem::inline v0::parallel {

/// How values of all ranks become one. On bool, sum and max are "or", product and min "and"; avg takes floating point
/// alone. 16-bit types are reduced in f32 and rounded once; integers wrap around. NCCL has its own way with 16-bit
/// types and NaN: see nccl_backend().
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product };
/// "sum", ...
TANDEM_API const char* to_string(ReduceOp op) noexcept;

/// What ranks can do together.
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
/// "broadcast", ...
TANDEM_API const char* to_string(CollectiveKind kind) noexcept;

/// One rank's call as plain data of fixed size: what is compared across ranks before anything moves, and what a backend
/// is asked to do.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;  // which call
  DType dtype = DType::f32;                       // of the elements
  DeviceType device = DeviceType::cpu;            // where the rank's tensor is
  ReduceOp op = ReduceOp::sum;                    // of reductions
  bool planned = false;                           // by plan_all_reduce(): its ranks are not compared call by call
  std::int32_t root = -1;                         // where it comes from or goes to; of send and recv the other rank
  std::int32_t tag = 0;        // of send and recv; number of a plan's making; of new_group a hash of its ranks
  std::int64_t sequence = -1;  // in the group, from 0; send and recv have none
  Shape shape;                 // of the rank's tensor: what goes in, or comes out of scatter and reduce_scatter

  /// Whether two ranks made the same call.
  friend bool operator==(const Collective&, const Collective&) = default;
};
static_assert(std::is_trivially_copyable_v<Collective>);

/// "all_reduce f32 [4] sum (#7)", "send i64 [2] to 1, tag 3".
TANDEM_API std::string to_string(const Collective& call);

/// Every rank's call, side by side: "rank 0: ...; rank 1: ...", ranks with equal calls together.
TANDEM_API std::string calls_side_by_side(std::span<const Collective> calls);
/// The lowest rank whose call differs from what most ranks made; -1 where no call has a majority, or all are equal.
TANDEM_API int odd_one_out(std::span<const Collective> calls);

/// Dense memory of one rank, on the call's device. `numel` is what one rank gives or gets: `in` of reduce_scatter,
/// scatter (at the root) and all_to_all holds size() times as much, and so does `out` of all_gather, gather (at the
/// root) and all_to_all. `in` and `out` are the same memory, or apart; but that a rank's own part of the larger one may
/// be the smaller one. Null where a rank has none.
struct Buffers {
  const void* in = nullptr;  // read
  void* out = nullptr;       // written
  std::int64_t numel = 0;    // elements
  Device device = {};        // where the memory is
};

/// When a call was made and when it gives up.
struct CallTime {
  std::chrono::steady_clock::time_point start;     // of the call
  std::chrono::steady_clock::time_point deadline;  // its end, at the latest
  /// Nothing else is done by the caller meanwhile: waiting actively takes no core from a computation of this rank.
  bool caller_waits = false;

  /// Seconds since the call.
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
};

}  // namespace tandem::inline v0::parallel
