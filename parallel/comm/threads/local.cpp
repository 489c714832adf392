#include <tandem/parallel/comm/threads/local.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/comm/threads/local_group.h>

namespace tandem::inline v0::parallel {

std::vector<std::unique_ptr<ProcessGroup>> local_groups(int ranks, const ProcessGroupOptions& options) {
  check<ConfigError>(ranks >= 1, "local_groups: {} ranks; expected at least 1", ranks);
  return detail::local_groups(std::make_shared<LocalWorld>(ranks), options);
}

std::vector<std::unique_ptr<ProcessGroup>> detail::local_groups(const std::shared_ptr<LocalWorld>& world,
                                                                const ProcessGroupOptions& options) {
  std::vector<int> members;
  for (int r = 0; r < world->size(); ++r) {
    members.push_back(r);
  }
  const auto group = std::make_shared<LocalGroup>(world, members);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (const int r : members) {
    groups.push_back(std::make_unique<ProcessGroup>(std::make_unique<LocalBackend>(group, r), options));
  }
  return groups;
}

}  // namespace tandem::inline v0::parallel
