#include <tandem/checkpoint/run_parts.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/anomaly.h>
#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::checkpoint {

namespace {

constexpr std::string_view kRankPrefix = "rank.";

std::string rank_prefix(int rank) { return fmt::format("{}{}.", kRankPrefix, rank); }

// A copy that the training does not change.
Tensor copied(const Tensor& tensor) {
  return tensor.device().type == DeviceType::cpu ? tensor.detach().clone() : tensor.detach().to("cpu");
}

// The tensors whose names begin with `prefix`, without it.
StateDict below(const StateDict& state, std::string_view prefix) {
  std::vector<StateDict::Entry> entries;
  for (const auto& [name, value] : state) {
    if (name.starts_with(prefix)) {
      entries.emplace_back(name.substr(prefix.size()), value);
    }
  }
  return StateDict(std::move(entries));
}

bool is_large(const detail::Part& part) { return part.module || part.optimizer != nullptr || part.average != nullptr; }

// The tensors of the parts that `belongs` chooses, each as `take` gives it.
template <class Belongs, class Take>
StateDict tensors_of(const std::vector<detail::Part>& parts, const Belongs& belongs, const Take& take) {
  std::vector<StateDict::Entry> entries;
  for (const detail::Part& part : parts) {
    if (belongs(part)) {
      for (const auto& [name, value] : part.save()) {
        entries.emplace_back(part.name + "." + name, take(value));
      }
    }
  }
  return StateDict(std::move(entries));
}

// The part to which a tensor belongs.
std::string_view part_of_name(std::string_view name) {
  if (name.starts_with(kRankPrefix)) {
    name.remove_prefix(std::min(name.size(), name.find('.', kRankPrefix.size()) + 1));
  }
  return name.substr(0, name.find('.'));
}

std::string random_name() { return fmt::format("{}.state", kRandomPart); }

Tensor random_state() {
  const Generator& generator = current_generator();
  return from_data(
      std::vector{static_cast<std::int64_t>(generator.seed()), static_cast<std::int64_t>(generator.offset())}, {2},
      {.device = "cpu"});
}

std::int64_t stored_bytes(const Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(item_size(tensor.dtype()));
}

// Which rank writes each of these tensors: the largest first, each the rank with the fewest bytes so far.
std::vector<int> writers_of(const std::vector<StateDict::Entry>& entries, int ranks) {
  std::vector<std::size_t> by_size(entries.size());
  for (std::size_t i = 0; i < by_size.size(); ++i) {
    by_size[i] = i;
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](auto a, auto b) { return stored_bytes(entries[a].second) > stored_bytes(entries[b].second); });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  std::vector<int> writers(entries.size());
  for (const std::size_t i : by_size) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += stored_bytes(entries[i].second);
    writers[i] = static_cast<int>(least - loads.begin());
  }
  return writers;
}

template <class T>
detail::Part part_of_numbers(const std::string& name, std::vector<T>* list, T* number) {
  return {.name = name,
          .save =
              [=] {
                const std::vector<T> values = list != nullptr ? *list : std::vector<T>{*number};
                const auto count = static_cast<std::int64_t>(values.size());
                return StateDict({{"value", from_data(values, {count}, {.device = "cpu"})}});
              },
          .load =
              [=](const StateDict& state) {
                const std::vector<T> values = state.at("value").to_vector<T>();
                check<ConfigError>(list != nullptr || values.size() == 1,
                                   "Run::track: '{}' is one number, and the checkpoint has {}", name, values.size());
                if (list != nullptr) {
                  *list = values;
                } else {
                  *number = values[0];
                }
              },
          .per_rank = true,
          .is_log = list != nullptr};
}

}  // namespace

detail::Part part_of(const std::string& name, std::int64_t& number) {
  return part_of_numbers<std::int64_t>(name, nullptr, &number);
}
detail::Part part_of(const std::string& name, double& number) {
  return part_of_numbers<double>(name, nullptr, &number);
}
detail::Part part_of(const std::string& name, std::vector<double>& numbers) {
  return part_of_numbers<double>(name, &numbers, nullptr);
}

void RunParts::restore_from(StateDict state, std::string path, int saved_ranks, bool is_own) {
  is_own_ = is_own;
  loaded_ = std::move(state);
  loaded_path_ = std::move(path);
  saved_ranks_ = saved_ranks;
  if (const Tensor* random = loaded_.find(rank_prefix(place_.rank) + random_name())) {
    check<IoError>(random->dtype() == DType::i64 && random->numel() == 2,
                   "'{}': this is no checkpoint of a run: '{}' is not two whole numbers", loaded_path_, random_name());
    random_ = *random;
  }
}

bool RunParts::has(const std::string& name) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const detail::Part& part) { return part.name == name; });
}

void RunParts::add(detail::Part part) {
  if (!loaded_path_.empty()) {
    const bool is_same_size = is_own_ || saved_ranks_ == place_.size;
    std::string prefix = part.name + ".";
    if (part.per_rank) {
      prefix.insert(0, rank_prefix(is_same_size ? place_.rank : 0));
    }
    if (part.loader != nullptr && saved_ranks_ != place_.size && (place_.size > 1 || is_own_)) {
      check<ConfigError>(
          part.save().at("replicas").item<std::int64_t>() == place_.size,
          "Run::track: '{}' was saved by {} ranks, there are {} now, and '{}' does not share its samples "
          "with the other ranks; give it a DistributedSampler, or start as many ranks as before",
          loaded_path_, saved_ranks_, place_.size, part.name);
    }
    if (part.per_rank && part.loader == nullptr && !is_same_size && place_.rank > 0) {
      parts_.push_back(std::move(part));  // numbers that are added up: rank 0 has those of the run before
      return;
    }
    const StateDict state = below(loaded_, prefix);
    if (is_own_ && part.per_rank && part.loader == nullptr && state.size() == 0) {
      parts_.push_back(std::move(part));  // numbers that are added up, on a rank that has come back
      return;
    }
    check<ConfigError>(state.size() > 0 || part.save().size() == 0,
                       "Run::track: '{}' has no '{}': the run that saved it did not track one. Begin a new folder, or "
                       "track what that run did, in the same order",
                       loaded_path_, part.name);
    try {
      part.load(state);
    } catch (Error& error) {
      error.add_context(fmt::format("while restoring '{}' from {}", part.name, loaded_path_));
      throw;
    }
  }
  parts_.push_back(std::move(part));
}

void RunParts::restore_random() const {
  if (random_.defined()) {
    const auto values = random_.to_vector<std::int64_t>();
    current_generator().manual_seed(static_cast<std::uint64_t>(values[0]));
    current_generator().set_offset(static_cast<std::uint64_t>(values[1]));
  }
}

void RunParts::finish_restoring() {
  for (const auto& [name, value] : loaded_) {
    const std::string_view part = part_of_name(name);
    check<ConfigError>(part == kRandomPart || has(std::string(part)),
                       "Run: '{}' has a part '{}' that is not tracked; track it, too, so that it goes on where it was",
                       loaded_path_, part);
  }
  loaded_ = StateDict();
}

nn::NamedTensors RunParts::parameters() const {
  nn::NamedTensors all;
  for (const detail::Part& part : parts_) {
    if (part.module) {
      for (auto& [name, value] : part.module->named_parameters()) {
        all.emplace_back(part.name + "." + name, value);
      }
    }
  }
  return all;
}

std::string RunParts::first_bad(const StateDict& snapshot) const {
  std::set<std::string, std::less<>> buffers;
  for (const detail::Part& part : parts_) {
    if (part.module) {
      for (const auto& [name, value] : part.module->named_buffers()) {
        buffers.insert(part.name + "." + name);
      }
    }
  }
  for (const auto& [name, value] : snapshot) {
    const std::string_view of = part_of_name(name);
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const auto& p) { return p.name == of; });
    if (part == parts_.end() || part->per_rank || (!part->module && part->optimizer == nullptr)) {
      continue;
    }
    // A buffer may be infinite on purpose, as a mask is.
    const bool is_bad = buffers.contains(name) ? !autograd::all_finite(value) && (value != value).any().item<bool>()
                                               : !autograd::all_finite(value);
    if (is_bad) {
      return name;
    }
  }
  return {};
}

StateDict RunParts::large_state() const {
  return tensors_of(parts_, is_large, [](const Tensor& value) { return value; });
}

StateDict RunParts::small_state() const {
  StateDict state =
      tensors_of(parts_, [](const detail::Part& part) { return !part.per_rank && !is_large(part); }, copied);
  for (const detail::Part& part : parts_) {
    if (part.optimizer != nullptr) {
      for (const auto& [name, value] : part.optimizer->group_options()) {
        state.set(part.name + "." + name, value);
      }
    }
  }
  return state;
}

StateDict RunParts::own_state() const {
  StateDict state = tensors_of(parts_, [](const detail::Part& part) { return part.per_rank; }, copied);
  state.set(random_name(), random_state());
  return state;
}

void RunParts::help_with_snapshot() const {
  for (const detail::Part& part : parts_) {
    if (part.optimizer != nullptr) {
      part.optimizer->state_dict(optim::StateParts::none);
    } else if (part.module && !part.per_rank) {
      part.save();
    }
  }
}

StateDict RunParts::snapshot(const std::vector<StateDict>& of_ranks, bool sharded) const {
  std::vector<StateDict::Entry> common;
  std::vector<bool> is_copy;
  for (const detail::Part& part : parts_) {
    if (!part.per_rank) {
      for (const auto& [name, value] : part.save()) {
        common.emplace_back(part.name + "." + name, value);
        is_copy.push_back(part.optimizer != nullptr && value.device().type == DeviceType::cpu);
      }
    }
  }
  const std::vector<int> writers = writers_of(common, sharded ? place_.size : 1);
  std::vector<StateDict::Entry> entries;
  for (std::size_t i = 0; i < common.size(); ++i) {
    if (!sharded || writers[i] == place_.rank) {
      entries.emplace_back(common[i].first, is_copy[i] ? common[i].second : copied(common[i].second));
    }
  }
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const auto& [name, value] : of_ranks[rank]) {
      entries.emplace_back(rank_prefix(static_cast<int>(rank)) + name, value);
    }
  }
  return StateDict(std::move(entries));
}

}  // namespace tandem::inline v0::checkpoint
