#include <tandem/parallel/device_mesh.h>

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/same_lines.h>
#include <tandem/parallel/rendezvous/environment.h>

namespace tandem::inline v0::parallel {

namespace {

std::string text_of(const std::vector<DeviceMesh::Axis>& axes) {
  std::vector<std::string> texts;
  for (const auto& [name, size] : axes) {
    texts.push_back(fmt::format("{} {}", name, size));
  }
  return fmt::format("{}", fmt::join(texts, " x "));
}

void check_axes(ProcessGroup& group, const std::vector<DeviceMesh::Axis>& axes) {
  check_same(group, "DeviceMesh", {text_of(axes)}, "axes", "All ranks must make the same mesh");
  check<ConfigError>(!axes.empty(), "DeviceMesh: no axes are given");
  long long ranks = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [name, size] = axes[i];
    const auto is_named_so = [&](const DeviceMesh::Axis& axis) { return axis.first == name; };
    check<ConfigError>(!name.empty() && std::ranges::count_if(axes, is_named_so) == 1,
                       "DeviceMesh: each axis needs a name of its own, got {}", text_of(axes));
    check<ConfigError>(size >= 1, "DeviceMesh: an axis has at least one rank, got {}", text_of(axes));
    ranks *= std::min(size, kMaxWorldSize);
    ranks = std::min<long long>(ranks, kMaxWorldSize);
  }
  check<ConfigError>(ranks == group.size(), "DeviceMesh: {} needs {}{} ranks, and the group has {}", text_of(axes),
                     ranks == kMaxWorldSize ? "at least " : "", ranks, group.size());
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<Axis> axes) : DeviceMesh(default_group(), std::move(axes)) {}

// All ranks make all groups of an axis, in the same order, and keep the one that they belong to.
DeviceMesh::DeviceMesh(ProcessGroup& group, std::vector<Axis> axes) : axes_(std::move(axes)) {
  check_axes(group, axes_);
  int stride = group.size();
  for (const auto& [name, size] : axes_) {
    stride /= size;  // between neighbours along this axis
    std::unique_ptr<ProcessGroup> own;
    for (int first = 0; first < group.size(); ++first) {
      if (first / stride % size != 0) {
        continue;
      }
      std::vector<int> ranks;
      for (int i = 0; i < size; ++i) {
        ranks.push_back(first + i * stride);
      }
      if (std::unique_ptr<ProcessGroup> made = group.new_group(std::move(ranks))) {
        own = std::move(made);
      }
    }
    groups_.push_back(std::move(own));
  }
}

ProcessGroup& DeviceMesh::operator[](std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::first);
  check<ConfigError>(found != axes_.end(), "DeviceMesh: there is no axis '{}'; the axes are {}", axis, text_of(axes_));
  return *groups_[static_cast<std::size_t>(found - axes_.begin())];
}

}  // namespace tandem::inline v0::parallel
