#include <tandem/parallel/comm/partner_totals.h>

#include <algorithm>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

PartnerTotals::PartnerTotals(ProcessGroup& group, const std::vector<Device>& devices, std::string name)
    : name_(std::move(name)) {
  for (const Device device : devices) {
    if (std::ranges::find(cells_, device, &Cell::device) == cells_.end()) {
      add_cell(group, device);
    }
  }
}

PartnerTotals::PartnerTotals(ProcessGroup& group, std::string name) : group_(&group), name_(std::move(name)) {}

PartnerTotals::Cell& PartnerTotals::cell_on(Device device) {
  const auto found = std::ranges::find(cells_, device, &Cell::device);
  if (found != cells_.end()) {
    return *found;
  }
  check<DeviceError>(group_ != nullptr, "{}: a number on {}, where the module has no parameters", name_, device);
  check<CaptureError>(tandem::detail::step_recorder() == nullptr,
                      "{}: a captured step joins numbers of gradients on {}, which no step before it did; call the "
                      "function once before its capture",
                      name_, device);
  return add_cell(*group_, device);
}

PartnerTotals::Cell& PartnerTotals::add_cell(ProcessGroup& group, Device device) {
  const tandem::detail::View value = zeros({1}, {.dtype = DType::f64, .device = device}).raw();
  const PlanName plan{.purpose = "a number of the gradients of " + name_, .advice = kAdvice};
  return cells_.emplace_back(device, value, group.plan_all_reduce(value, ReduceOp::sum, plan),
                             group.plan_all_reduce(value, ReduceOp::max, plan));
}

void PartnerTotals::total(const tandem::detail::View& value, Total how) {
  Cell& cell = cell_on(value.device());
  tandem::detail::copy(cell.value, value);
  PlannedCollective* const plan = how == Total::sum ? &cell.sum : &cell.largest;
  life_.watch();
  tandem::detail::placed_work("StepPartners::total", [plan] {
    const SpanScope timed(Phase::reduce);
    plan->run();
  });
  tandem::detail::copy(value, cell.value);
}

}  // namespace tandem::inline v0::parallel
