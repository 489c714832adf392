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
  struct Block {
    std::size_t bytes;
    std::size_t from;
    std::size_t to = std::numeric_limits<std::size_t>::max();  // an allocation that is never freed keeps its place
  };
  std::vector<Block> blocks;
  Plan plan;
  for (std::size_t time = 0; time < trace.events.size(); ++time) {
    const Event& event = trace.events[time];
    if (event.kind == Event::Kind::allocate) {
      const std::size_t bytes = std::max<std::size_t>(event.number, 1);
      const bool on_gpu = device_at(event.place).type == DeviceType::cuda;
      const std::size_t alignment = on_gpu ? Plan::kGpuAlignment : Plan::kAlignment;
      blocks.push_back({(bytes + alignment - 1) / alignment * alignment, time});
      plan.block.push_back(block_at(plan, event.place));
      plan.requested += blocks.back().bytes;
    } else if (event.kind == Event::Kind::free) {
      blocks[event.number].to = time;
    }
  }
  // The largest allocation comes first. Each one goes to the lowest offset where it overlaps no allocation alive at the
  // same time.
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  plan.offsets.resize(blocks.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t index : order) {
    const Block& block = blocks[index];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool together =
          plan.block[other] == plan.block[index] && blocks[other].from < block.to && block.from < blocks[other].to;
      if (together && plan.offsets[other] < offset + block.bytes) {
        offset = std::max(offset, plan.offsets[other] + blocks[other].bytes);
      }
    }
    plan.offsets[index] = offset;
    std::size_t& size = plan.blocks[plan.block[index]].bytes;
    size = std::max(size, offset + block.bytes);
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
