#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// The ranks of a group in a grid with named axes, for schemes that are combined:
///
///     parallel::DeviceMesh mesh({{"data", 2}, {"pipeline", 2}});
///     parallel::Pipeline pipeline(model, mesh["pipeline"], {.average_over = &mesh["data"]});
///
/// The last axis runs fastest, as in torch.distributed.device_mesh: of 4 ranks, 0 and 1 are the first pipeline. Ranks
/// that exchange most belong next to each other, on the last axis.
class TANDEM_API DeviceMesh {
 public:
  /// An axis: its name and the number of ranks along it, at least 1.
  using Axis = std::pair<std::string, int>;

  /// A mesh of all ranks. A collective. Throws ConfigError on all ranks if the product of the sizes is not the number
  /// of ranks, a name is there twice or is empty, or the ranks' axes differ.
  explicit DeviceMesh(std::vector<Axis> axes);
  /// As above, for the ranks of `group`.
  DeviceMesh(ProcessGroup& group, std::vector<Axis> axes);

  /// The group of the ranks that differ from this one along that axis alone, numbered along it. It lives as long as the
  /// mesh. Throws ConfigError, with the names there are, for another name.
  ProcessGroup& operator[](std::string_view axis) const;
  /// This rank's place along the axis.
  int rank(std::string_view axis) const { return (*this)[axis].rank(); }
  /// The number of ranks along the axis.
  int size(std::string_view axis) const { return (*this)[axis].size(); }
  /// The axes, as they were given.
  const std::vector<Axis>& axes() const noexcept { return axes_; }

 private:
  std::vector<Axis> axes_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;  // of this rank, one for each axis
};

}  // namespace tandem::inline v0::parallel
