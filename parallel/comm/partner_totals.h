#pragma once

#include <deque>
#include <string>
#include <vector>

#include <tandem/autograd/sharding.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Internal: the ranks of a group join numbers of their gradients: flags, parts of norms.
class PartnerTotals final : public autograd::StepPartners {
 public:
  /// The advice of errors about ranks whose calls differ.
  static constexpr const char* kAdvice =
      "All ranks step the same optimisers in the same order, and clip gradients together";

  /// For numbers on these devices. Errors call the ranks' work `name`. A collective.
  PartnerTotals(ProcessGroup& group, const std::vector<Device>& devices, std::string name);
  /// For numbers on any device; the first one on each is another collective. The group must outlive this object.
  PartnerTotals(ProcessGroup& group, std::string name);

  void total(const tandem::detail::View& value, Total how) override;

 private:
  // Where a number is exchanged.
  struct Cell {
    Device device;
    tandem::detail::View value;
    PlannedCollective sum, largest;
  };

  Cell& cell_on(Device device);
  Cell& add_cell(ProcessGroup& group, Device device);

  ProcessGroup* group_ = nullptr;  // that makes more cells
  std::string name_;
  std::deque<Cell> cells_;
  tandem::detail::Watched life_;  // captured steps refer to this object
};

}  // namespace tandem::inline v0::parallel
