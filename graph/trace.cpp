#include <tandem/graph/trace.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <tandem/kernels/launch.h>

namespace tandem::inline v0::graph {

namespace {

std::string describe(const Event& event) {
  switch (event.kind) {
    case Event::Kind::allocate: return fmt::format("a tensor of {} bytes was made", event.number);
    case Event::Kind::free: return fmt::format("tensor {} of the step was let go", event.number);
    case Event::Kind::launch: return fmt::format("'{}' was launched", event.name);
    case Event::Kind::draw: return fmt::format("{} blocks of random numbers were drawn", event.number);
    case Event::Kind::work: return fmt::format("'{}' was done", event.name);
    case Event::Kind::lane: return fmt::format("lane {} began", event.number);
    case Event::Kind::use: return fmt::format("tensor {} of the step was used in another lane", event.number);
    case Event::Kind::join: return "the lanes were done";
  }
  __builtin_unreachable();
}

bool same_kind(const Event& a, const Event& b) {
  const bool anywhere = a.kind == Event::Kind::draw;
  return a.kind == b.kind && a.identity == b.identity && a.number == b.number && (anywhere || a.place == b.place) &&
         a.words == b.words && (a.kind != Event::Kind::work || std::string_view(a.name) == b.name);
}

}  // namespace

bool Comparison::same_words(const Event& before, const Event& now, const Trace& trace) const {
  for (std::size_t i = 0; i < now.words; ++i) {
    const Word& a = before_->words[before.first_word + i];
    const Word& b = trace.words[now.first_word + i];
    const bool position = a.block == 0 && b.block == 0 && a.value == drawn_before_ && b.value == drawn_now_;
    if (a != b && !position) {
      return false;
    }
  }
  return true;
}

void Comparison::add(const Trace& now) {
  if (!equal()) {
    return;
  }
  const std::size_t at = now.events.size() - 1;
  const Event& event = now.events[at];
  if (at >= before_->events.size()) {
    differ(fmt::format("after {} launches the run before was done, now {}", launches_, describe(event)));
    return;
  }
  const Event& before = before_->events[at];
  if (!same_kind(before, event)) {
    differ(fmt::format("after {} launches {}, in the run before {}", launches_, describe(event), describe(before)));
    return;
  }
  if (event.kind == Event::Kind::draw) {
    drawn_before_ = before.place;
    drawn_now_ = event.place;
  } else if (event.kind == Event::Kind::launch) {
    ++launches_;
    if (kernels::kPaddingIsZero && !same_words(before, event, now)) {
      differ(
          fmt::format("launch {}, '{}', had other numbers or tensors than in the run before; a number that changes "
                      "from step to step must be a tensor, and a tensor be written in place",
                      launches_, event.name));
    }
  }
}

void Comparison::end(const Trace& now) {
  if (equal() && now.events.size() < before_->events.size()) {
    differ(fmt::format("after {} launches the step was done, in the run before {}", launches_,
                       describe(before_->events[now.events.size()])));
  }
}

std::uint64_t place_of(Device device) noexcept {
  return (static_cast<std::uint64_t>(device.type) << 32) | static_cast<std::uint16_t>(device.index);
}

Device device_at(std::uint64_t place) noexcept {
  return {static_cast<DeviceType>(place >> 32), static_cast<std::int16_t>(place)};
}

namespace {

// A point of the step. Points in different lanes of one section (up to a join) have no order in a replay.
struct Moment {
  std::size_t time = 0;
  std::size_t section = 0;  // 0 outside of lanes
  std::size_t lane = 0;

  bool is_before(const Moment& other) const {
    return time < other.time && (section == 0 || section != other.section || lane == other.lane);
  }
};

// The life of an allocation.
struct Life {
  std::size_t bytes;
  Moment from;
  Moment to{std::numeric_limits<std::size_t>::max()};  // an allocation that is never freed keeps its place
  std::size_t section = 0;                             // the last section that used it, and the first lane there
  std::size_t lane = 0;
  bool is_shared = false;  // several lanes of that section used it

  void use(const Moment& now) {
    is_shared = now.section == section && (is_shared || now.lane != lane);
    lane = now.section == section ? lane : now.lane;
    section = now.section;
  }
  bool overlaps(const Life& other) const { return !to.is_before(other.from) && !other.to.is_before(from); }
};

// The lives of all allocations of a trace. What several lanes used is free when all lanes are done, whichever lane of
// the recording let it go.
std::vector<Life> lives_of(const Trace& trace) {
  std::vector<Life> lives;
  std::vector<std::size_t> until_join;
  std::size_t sections = 1;
  Moment now;
  for (; now.time < trace.events.size(); ++now.time) {
    const Event& event = trace.events[now.time];
    switch (event.kind) {
      case Event::Kind::lane:
        now.section = sections;
        now.lane = event.number;
        break;
      case Event::Kind::join:
        ++sections;
        now.section = now.lane = 0;
        for (const std::size_t index : until_join) {
          lives[index].to = now;
        }
        until_join.clear();
        break;
      case Event::Kind::allocate:
        lives.push_back({.bytes = std::max<std::size_t>(event.number, 1), .from = now});
        lives.back().use(now);
        break;
      case Event::Kind::use: lives[event.number].use(now); break;
      case Event::Kind::free:
        lives[event.number].use(now);
        if (now.section != 0 && lives[event.number].is_shared) {
          until_join.push_back(event.number);
        } else {
          lives[event.number].to = now;
        }
        break;
      default: break;
    }
  }
  return lives;
}

// The plan's block for a device; the first allocation on a device adds a block.
std::size_t block_at(Plan& plan, std::uint64_t place) {
  const auto found =
      std::find_if(plan.blocks.begin(), plan.blocks.end(), [&](const Plan::Block& b) { return b.place == place; });
  if (found != plan.blocks.end()) {
    return static_cast<std::size_t>(found - plan.blocks.begin());
  }
  plan.blocks.push_back({place, 0});
  return plan.blocks.size() - 1;
}

}  // namespace

Plan make_plan(const Trace& trace) {
  std::vector<Life> lives = lives_of(trace);
  Plan plan;
  for (Life& life : lives) {
    const std::uint64_t place = trace.events[life.from.time].place;
    const std::size_t alignment = device_at(place).type == DeviceType::cuda ? Plan::kGpuAlignment : Plan::kAlignment;
    life.bytes = (life.bytes + alignment - 1) / alignment * alignment;
    plan.block.push_back(block_at(plan, place));
    plan.requested += life.bytes;
  }
  // The largest allocation comes first. Each one goes to the lowest offset where it overlaps no allocation alive at the
  // same time.
  std::vector<std::size_t> order(lives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lives[a].bytes > lives[b].bytes; });
  plan.offsets.resize(lives.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t index : order) {
    const Life& life = lives[index];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool together = plan.block[other] == plan.block[index] && lives[other].overlaps(life);
      if (together && plan.offsets[other] < offset + life.bytes) {
        offset = std::max(offset, plan.offsets[other] + lives[other].bytes);
      }
    }
    plan.offsets[index] = offset;
    std::size_t& size = plan.blocks[plan.block[index]].bytes;
    size = std::max(size, offset + life.bytes);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](std::size_t value, std::size_t other) { return value < plan.offsets[other]; });
    placed.insert(behind, index);
  }
  for (const Plan::Block& block : plan.blocks) {
    plan.bytes += block.bytes;
  }
  return plan;
}

}  // namespace tandem::inline v0::graph
