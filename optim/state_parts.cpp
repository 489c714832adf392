#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/optim/optimizer.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::optim {

namespace {

constexpr std::string_view kPart = ".part";
constexpr std::string_view kShape = ".shape";

// An entry "state.<i>.part" gives a part's place.
struct PlaceOfPart {
  std::int64_t begin, count, rank, size;

  explicit PlaceOfPart(const Tensor& entry) {
    check<ConfigError>(entry.dtype() == DType::i64 && entry.numel() == 4,
                       "join_state_parts: a part's place is {} {}; expected 4 integers", entry.dtype(), entry.shape());
    const std::vector<std::int64_t> values = entry.to("cpu").to_vector<std::int64_t>();
    begin = values[0];
    count = values[1];
    rank = values[2];
    size = values[3];
  }
};

// "state.3" of "state.3.exp_avg"; empty for other names.
std::string prefix_of(const std::string& name) {
  return name.starts_with("state.") ? name.substr(0, name.rfind('.')) : std::string();
}

bool has_parts(const StateDict& state) {
  return std::any_of(state.begin(), state.end(), [](const auto& entry) { return entry.first.ends_with(kPart); });
}

// The first part's place in a state; all of its parts are of one rank.
PlaceOfPart first_place(const StateDict& state) {
  const auto entry = std::find_if(state.begin(), state.end(), [](const auto& e) { return e.first.ends_with(kPart); });
  check<ConfigError>(entry != state.end(),
                     "join_state_parts: a state is no part of one; expected each rank's state_dict(StateParts::own)");
  return PlaceOfPart(entry->second);
}

// The parts in the order of ranks.
std::vector<const StateDict*> in_order(const std::vector<StateDict>& parts) {
  check<ConfigError>(!parts.empty(), "join_state_parts: there are no parts");
  const std::int64_t size = first_place(parts.front()).size;
  check<ConfigError>(static_cast<std::int64_t>(parts.size()) == size,
                     "join_state_parts: {} parts of {}; expected those of all ranks", parts.size(), size);
  std::vector<const StateDict*> ordered(parts.size());
  for (const StateDict& part : parts) {
    const PlaceOfPart place = first_place(part);
    check<ConfigError>(place.size == size && place.rank >= 0 && place.rank < size,
                       "join_state_parts: a part is of rank {} of {}, the first one of {} ranks", place.rank,
                       place.size, size);
    const StateDict*& at = ordered[static_cast<std::size_t>(place.rank)];
    check<ConfigError>(at == nullptr, "join_state_parts: the part of rank {} is there twice", place.rank);
    check<ConfigError>(part.size() == parts.front().size(),
                       "join_state_parts: rank {}'s part has {} entries, others {}; are they of one step?", place.rank,
                       part.size(), parts.front().size());
    at = &part;
  }
  return ordered;
}

// All ranks' parts of one buffer.
Tensor joined(const std::vector<const StateDict*>& parts, const std::string& name, const std::string& prefix) {
  const std::vector<std::int64_t> sizes =
      parts.front()->at(fmt::format("{}{}", prefix, kShape)).to("cpu").to_vector<std::int64_t>();
  const Tensor& first = parts.front()->at(name);
  Shape shape;
  for (const std::int64_t size : sizes) {
    shape.push_back(size);
  }
  const Tensor whole = zeros(shape, {.dtype = first.dtype(), .device = first.device()});
  const Tensor flat = whole.flatten();
  std::int64_t end = 0;
  std::int64_t total = 0;
  for (const StateDict* part : parts) {
    const PlaceOfPart place(part->at(fmt::format("{}{}", prefix, kPart)));
    const Tensor& elements = part->at(name);
    const bool fits = elements.dtype() == first.dtype() && elements.numel() == place.count && place.begin >= end &&
                      place.count >= 0 && place.count <= flat.numel() - place.begin;
    check<ConfigError>(
        fits || place.count == 0,
        "join_state_parts: '{}' of rank {} has {} {} for elements {} to {} of {}; expected {} that follow "
        "those of the ranks before",
        name, place.rank, elements.dtype(), elements.shape(), place.begin, place.begin + place.count, whole.shape(),
        first.dtype());
    if (place.count > 0) {
      detail::copy(detail::narrow(flat.raw(), 0, place.begin, place.count), elements.to(flat.device()).raw());
      end = place.begin + place.count;
    }
    total += place.count;
  }
  check<ConfigError>(total == flat.numel(), "join_state_parts: '{}': the ranks have {} of its {} elements", name, total,
                     flat.numel());
  return whole;
}

}  // namespace

StateDict join_state_parts(const std::vector<StateDict>& parts) {
  const NoGradGuard no_grad;
  if (!parts.empty() && std::ranges::none_of(parts, has_parts)) {  // before the first step there is nothing to cut
    return parts.front();
  }
  const std::vector<const StateDict*> ordered = in_order(parts);
  StateDict whole;
  for (const auto& [name, value] : *ordered.front()) {
    const std::string prefix = prefix_of(name);
    const bool is_cut = !prefix.empty() && ordered.front()->contains(fmt::format("{}{}", prefix, kPart));
    if (!is_cut || name.ends_with(".step")) {
      whole.set(name, value);
    } else if (!name.ends_with(kPart) && !name.ends_with(kShape)) {
      whole.set(name, joined(ordered, name, prefix));
    }
  }
  return whole;
}

}  // namespace tandem::inline v0::optim
