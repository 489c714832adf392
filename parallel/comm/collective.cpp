#include <tandem/parallel/comm/collective.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::parallel {

const char* to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::avg: return "avg";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::product: return "product";
  }
  return "unknown";
}

const char* to_string(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::gather: return "gather";
    case CollectiveKind::scatter: return "scatter";
    case CollectiveKind::all_to_all: return "all_to_all";
    case CollectiveKind::send: return "send";
    case CollectiveKind::recv: return "recv";
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::new_group: return "new_group";
  }
  return "unknown";
}

std::string to_string(const Collective& call) {
  using Kind = CollectiveKind;
  std::string text = fmt::format("{}{}", call.planned ? "planned " : "", to_string(call.kind));
  if (call.kind == Kind::new_group) {
    const bool whole = call.root == call.shape.ndim();
    text += fmt::format(" of {} ranks: {}{}", call.root, fmt::join(call.shape, ", "), whole ? "" : ", ...");
  } else if (call.kind != Kind::barrier) {
    text += fmt::format(" {} {}{}", call.dtype, call.shape, call.device == DeviceType::cuda ? " on cuda" : "");
  }
  if (call.kind == Kind::all_reduce || call.kind == Kind::reduce || call.kind == Kind::reduce_scatter) {
    text += fmt::format(" {}", to_string(call.op));
  }
  if (call.planned && call.tag >= 0) {
    text += fmt::format(" of plan #{}", call.tag);
  }
  switch (call.kind) {
    case Kind::broadcast:
    case Kind::scatter: text += fmt::format(" from {}", call.root); break;
    case Kind::reduce:
    case Kind::gather: text += fmt::format(" to {}", call.root); break;
    case Kind::send: text += fmt::format(" to {}, tag {}", call.root, call.tag); break;
    case Kind::recv: text += fmt::format(" from {}, tag {}", call.root, call.tag); break;
    default: break;
  }
  if (call.sequence >= 0) {
    text += fmt::format(" (#{})", call.sequence);
  }
  return text;
}

}  // namespace tandem::inline v0::parallel
