#include <tandem/parallel/distributed/cut_plan.h>

#include <algorithm>
#include <cstddef>

#include <tandem/core/huge_pages.h>

namespace tandem::inline v0::parallel {

using tandem::detail::narrow;
using tandem::detail::View;

namespace {

void drop_elements(const View& values, std::int64_t first, std::int64_t count) {
  const View part = narrow(values, 0, first, count);
  core::drop_pages(part.data(), static_cast<std::size_t>(count) * item_size(part.dtype));
}

}  // namespace

CutBucket::CutBucket(std::int64_t numel, DType dtype, int ranks) {
  const std::int64_t step = kStep / static_cast<std::int64_t>(item_size(dtype));
  part = numel / ranks / step * step;
  rest = numel - part * ranks;
}

void CutPlan::start() { std::ranges::for_each(calls_, &PlannedCollective::start); }

void CutPlan::run() { std::ranges::for_each(calls_, &PlannedCollective::run); }

void CutPlan::wait() { std::ranges::for_each(calls_, &PlannedCollective::wait); }

CutPlan plan_reduce_parts(ProcessGroup& group, const View& gradients, const PlanName& name) {
  const CutBucket cut(gradients.numel(), gradients.dtype, group.size());
  const std::int64_t whole = cut.part * group.size();
  std::vector<PlannedCollective> calls;
  if (whole > 0) {
    calls.push_back(group.plan_reduce_scatter(narrow(gradients, 0, 0, whole), ReduceOp::avg, name));
  }
  if (cut.rest > 0) {
    calls.push_back(group.plan_all_reduce(narrow(gradients, 0, whole, cut.rest), ReduceOp::avg,
                                          {.purpose = "the end of " + name.purpose, .advice = name.advice}));
  }
  return CutPlan(std::move(calls));
}

CutPlan plan_gather_parts(ProcessGroup& group, const View& values, const PlanName& name) {
  const CutBucket cut(values.numel(), values.dtype, group.size());
  const std::int64_t whole = cut.part * group.size();
  std::vector<PlannedCollective> calls;
  if (whole > 0) {
    calls.push_back(group.plan_all_gather(narrow(values, 0, 0, whole), name));
  }
  if (cut.rest > 0) {
    calls.push_back(group.plan_broadcast(narrow(values, 0, whole, cut.rest), group.size() - 1,
                                         {.purpose = "the end of " + name.purpose, .advice = name.advice}));
  }
  return CutPlan(std::move(calls));
}

void drop_other_parts(const View& values, int rank, int ranks) {
  const CutBucket cut(values.numel(), values.dtype, ranks);
  const std::int64_t begin = cut.begin(rank);
  const std::int64_t end = cut.end(rank, ranks);
  drop_elements(values, 0, begin);
  drop_elements(values, end, values.numel() - end);
}

}  // namespace tandem::inline v0::parallel
