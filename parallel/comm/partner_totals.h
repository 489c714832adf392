#pragma once

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

  /// For numbers on these devices. Errors call the ranks' work `name`.
  PartnerTotals(ProcessGroup& group, const std::vector<Device>& devices, std::string name);

  void total(const tandem::detail::View& value, Total how) override;

 private:
  // Where a number is exchanged, on one device.
  struct Cell {
    tandem::detail::View value;
    PlannedCollective sum, largest;
  };

  std::string name_;
  std::vector<Cell> cells_;
  tandem::detail::Watched life_;  // captured steps refer to this object
};

}  // namespace tandem::inline v0::parallel
