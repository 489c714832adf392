#include <tandem/parallel/comm/threads/local_group.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tandem::inline v0::parallel {

void LocalWorld::leave(int rank, std::string how) {
  const auto index = static_cast<std::size_t>(rank);
  how_[index] = std::move(how);
  gone_[index].store(true);
  lot_.wake();
}

LocalSlot::Marks LocalSlot::own_marks(Device gpu) {
  if (const auto there = marks(); there && there->given.device() == gpu) {
    return *there;
  }
  const Marks made(gpu);
  const std::lock_guard lock(lock_);
  marks_ = made;
  return made;
}

std::optional<LocalSlot::Marks> LocalSlot::marks() {
  const std::lock_guard lock(lock_);
  return marks_;
}

void LocalSlot::post(LocalMessage message) {
  {
    const std::lock_guard lock(lock_);
    messages_.push_back(std::move(message));
  }
  posts.fetch_add(1);
}

std::deque<LocalMessage>::iterator LocalSlot::find(int from, int tag) {
  return std::find_if(messages_.begin(), messages_.end(),
                      [&](const LocalMessage& message) { return message.from == from && message.call.tag == tag; });
}

bool LocalSlot::has_message(int from, int tag) {
  const std::lock_guard lock(lock_);
  return find(from, tag) != messages_.end();
}

std::optional<LocalMessage> LocalSlot::fetch(int from, int tag) {
  const std::lock_guard lock(lock_);
  const auto found = find(from, tag);
  if (found == messages_.end()) {
    return std::nullopt;
  }
  LocalMessage message = std::move(*found);
  messages_.erase(found);
  return message;
}

LocalGroup::LocalGroup(std::shared_ptr<LocalWorld> world, std::vector<int> members)
    : world_(std::move(world)), members_(std::move(members)), slots_(members_.size()) {}

std::string LocalGroup::why_lost(int rank) {
  return world_->has_left(world_rank(rank)) ? fmt::format("its function {}", world_->how_it_left(world_rank(rank)))
                                            : std::string("it destroyed its process group");
}

void LocalGroup::fail(const CommError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return;
    }
    failure_.emplace(error);
  }
  failed_.store(true);
  lot().wake();
}

void LocalGroup::throw_failure() const {
  const std::lock_guard lock(mutex_);
  throw CommError(*failure_);
}

std::optional<CommError> LocalGroup::failure() const {
  if (!has_failed()) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<LocalGroup> LocalGroup::subgroup(std::uint64_t meeting, std::span<const int> members) {
  const std::lock_guard lock(mutex_);
  Subgroup& entry = subgroups_[meeting];
  if (!entry.group) {
    std::vector<int> in_world;
    for (const int member : members) {
      in_world.push_back(world_rank(member));
    }
    entry.group = std::make_shared<LocalGroup>(world_, std::move(in_world));
  }
  std::shared_ptr<LocalGroup> group = entry.group;
  if (++entry.taken == members.size()) {
    subgroups_.erase(meeting);
  }
  return group;
}

}  // namespace tandem::inline v0::parallel
