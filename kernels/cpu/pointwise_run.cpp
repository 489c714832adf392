#include <tandem/kernels/pointwise_run.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include <tandem/core/dtype.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/pointwise_formulas.h>

namespace tandem::inline v0::kernels {

namespace {

// Elements of a piece: those of a dozen tensors stay in a second-level cache. Pieces end where vector loops do.
constexpr std::int64_t kPiece = 2048;
// A longer run would read more tensors than that cache holds.
constexpr std::size_t kMostLaunches = 16;
// From here on a run is faster than its launches one by one.
constexpr std::int64_t kLeast = 2 * kPiece;

std::int64_t item_size_of(const Pointwise& launch) { return static_cast<std::int64_t>(item_size(launch.dtype)); }

// The bytes that an operand of a launch covers.
struct Range {
  const std::byte* begin;
  const std::byte* end;
  bool is_scalar;

  Range(const Pointwise& launch, const Operand& operand)
      : begin(operand.as<const std::byte>()),
        end(begin + (operand.strides[0] == 0 ? 1 : launch.loop.sizes[0]) * item_size_of(launch)),
        is_scalar(operand.strides[0] == 0) {}

  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  // Whether equal pieces of both are the same bytes.
  bool is_same(const Range& other) const {
    return begin == other.begin && end == other.end && !is_scalar && !other.is_scalar;
  }
};

std::span<const Operand> inputs_of(const Pointwise& launch) {
  return {launch.in, static_cast<std::size_t>(arity(launch.op))};
}

// Whether pieces may be computed in the order of the pieces instead of that of the launches: what either launch writes
// is for the other one the same elements, or none.
bool is_apart(const Pointwise& launch, const Pointwise& other) {
  const Range out(launch, launch.out);
  const auto clashes = [&](const Operand& operand) {
    const Range range(other, operand);
    return out.overlaps(range) && !out.is_same(range);
  };
  return !clashes(other.out) && std::ranges::none_of(inputs_of(other), clashes);
}

void move_on(Operand& operand, std::int64_t bytes) {
  if (operand.strides[0] != 0) {
    operand.data = operand.as<std::byte>() + bytes;
  }
}

}  // namespace

bool PointwiseRun::fits(const Pointwise& launch) {
  return launch.loop.ndim == 1 && launch.loop.sizes[0] >= kLeast && launch.out.strides[0] == 1 &&
         std::ranges::all_of(inputs_of(launch),
                             [](const Operand& in) { return in.strides[0] == 1 || in.strides[0] == 0; }) &&
         is_apart(launch, launch);
}

bool PointwiseRun::join(const Pointwise& next) {
  if (launches_.size() == kMostLaunches || !fits(next) || next.loop.sizes[0] != launches_.front().loop.sizes[0] ||
      !std::ranges::all_of(launches_,
                           [&](const Pointwise& launch) { return is_apart(launch, next) && is_apart(next, launch); })) {
    return false;
  }
  launches_.push_back(next);
  return true;
}

void PointwiseRun::run(Context& context) const {
  const std::int64_t count = launches_.front().loop.sizes[0];
  core::parallel_for(count, cpu::element_grain(count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kPiece) {
      for (const Pointwise& launch : launches_) {
        Pointwise piece = launch;
        piece.loop.sizes[0] = std::min(kPiece, end - at);
        const std::int64_t bytes = at * item_size_of(launch);
        move_on(piece.out, bytes);
        for (Operand& in : piece.in) {
          move_on(in, bytes);
        }
        kernels::run(OnCpu{}, context, piece);
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels
