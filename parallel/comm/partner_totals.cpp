#include <tandem/parallel/comm/partner_totals.h>

#include <algorithm>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

PartnerTotals::PartnerTotals(ProcessGroup& group, const std::vector<Device>& devices, std::string name)
    : name_(std::move(name)) {
  for (const Device device : devices) {
    if (std::ranges::any_of(cells_, [&](const Cell& cell) { return cell.value.device() == device; })) {
      continue;
    }
    const tandem::detail::View value = zeros({1}, {.dtype = DType::f64, .device = device}).raw();
    const PlanName plan{.purpose = "a number of the gradients of " + name_, .advice = kAdvice};
    cells_.push_back(
        {value, group.plan_all_reduce(value, ReduceOp::sum, plan), group.plan_all_reduce(value, ReduceOp::max, plan)});
  }
}

void PartnerTotals::total(const tandem::detail::View& value, Total how) {
  const auto cell =
      std::ranges::find_if(cells_, [&](const Cell& each) { return each.value.device() == value.device(); });
  check<DeviceError>(cell != cells_.end(), "{}: a number on {}, where the module has no parameters", name_,
                     value.device());
  tandem::detail::copy(cell->value, value);
  PlannedCollective* const plan = how == Total::sum ? &cell->sum : &cell->largest;
  life_.watch();
  tandem::detail::placed_work("StepPartners::total", [plan] {
    const PhaseScope timed(Phase::reduce);
    plan->run();
  });
  tandem::detail::copy(value, cell->value);
}

}  // namespace tandem::inline v0::parallel
