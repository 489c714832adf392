#include <tandem/parallel/comm/group_names.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kShown = 16;  // ranks of a list

std::string text_of(const std::vector<int>& ranks) {
  const std::size_t shown = std::min(ranks.size(), kShown);
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(ranks.begin(), ranks.begin() + shown, ", "),
                     shown < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

bool has_root(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::send:
    case CollectiveKind::recv: return true;
    default: return false;
  }
}

}  // namespace

int GroupNames::rank(int of_group) const {
  const bool is_mapped = of_group >= 0 && static_cast<std::size_t>(of_group) < ranks_.size();
  return is_mapped ? ranks_[static_cast<std::size_t>(of_group)] : of_group;
}

std::vector<int> GroupNames::ranks(std::span<const int> of_group) const {
  std::vector<int> in_job;
  for (const int r : of_group) {
    in_job.push_back(rank(r));
  }
  return in_job;
}

std::string GroupNames::list(std::span<const int> of_group) const { return text_of(ranks(of_group)); }

std::string GroupNames::members() const { return ranks_.empty() ? std::string() : text_of(ranks_); }

void GroupNames::note_plan(int number, PlanName name) {
  const std::lock_guard lock(mutex_);
  plans_.insert_or_assign(number, std::move(name));
}

const PlanName* GroupNames::plan_of(const Collective& call) const {
  const std::lock_guard lock(mutex_);
  const auto found = call.planned ? plans_.find(call.tag) : plans_.end();
  return found == plans_.end() || found->second.purpose.empty() ? nullptr : &found->second;
}

std::string GroupNames::call(const Collective& call) const {
  Collective named = call;
  if (has_root(call.kind)) {
    named.root = rank(call.root);
  }
  if (call.kind == CollectiveKind::new_group) {
    for (int i = 0; i < named.shape.ndim(); ++i) {
      named.shape[i] = rank(static_cast<int>(call.shape[i]));
    }
  }
  const PlanName* plan = plan_of(call);
  named.planned = call.planned && plan == nullptr;
  return plan == nullptr ? to_string(named) : fmt::format("{}, {}", to_string(named), plan->purpose);
}

std::string GroupNames::calls(std::span<const Collective> calls) const {
  std::string text;
  for (std::size_t first = 0; first < calls.size(); ++first) {
    const std::span<const Collective> earlier = calls.first(first);
    if (std::find(earlier.begin(), earlier.end(), calls[first]) != earlier.end()) {
      continue;  // listed with the earlier rank
    }
    std::vector<int> same;
    for (std::size_t r = first; r < calls.size(); ++r) {
      if (calls[r] == calls[first]) {
        same.push_back(rank(static_cast<int>(r)));
      }
    }
    text += fmt::format("{}{}: {}", first == 0 ? "" : "; ", text_of(same), call(calls[first]));
  }
  return text;
}

std::string GroupNames::advice(std::span<const Collective> calls) const {
  std::vector<std::string> said;
  for (const Collective& call : calls) {
    const PlanName* plan = plan_of(call);
    if (plan != nullptr && !plan->advice.empty() && std::find(said.begin(), said.end(), plan->advice) == said.end()) {
      said.push_back(plan->advice);
    }
  }
  return fmt::format("{}", fmt::join(said, ". "));
}

}  // namespace tandem::inline v0::parallel
