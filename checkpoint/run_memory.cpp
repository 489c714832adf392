#include <tandem/checkpoint/run_memory.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/checkpoint/rank_link.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::checkpoint {

namespace {

// In the state that the ranks share, the entries of the source's own state have this prefix.
constexpr std::string_view kSourcePrefix = "rank.source.";

// A rank is at most one exchange ahead of rank 0, and no more than three notes lie between two exchanges: those of a
// step, of the end of an epoch, and of the next step.
constexpr std::int64_t kNotesAhead = 3;

// The part of "loader.epoch".
std::string_view part_in(std::string_view name) { return name.substr(0, name.find('.')); }

}  // namespace

StepNotes::StepNotes(const RunParts& parts, std::int64_t lines) : parts_(parts), lines_(lines) {
  for (const auto& [name, parameter] : parts.parameters()) {
    parameters_.push_back(parameter);
  }
  for (const detail::Part& part : parts.list()) {
    if (part.module) {
      for (auto& [name, buffer] : part.module->named_buffers()) {
        live_buffers_.emplace_back(part.name + "." + name, buffer);
        buffers_.emplace_back(part.name + "." + name, buffer.detach().clone());
      }
    }
    if (part.loader != nullptr) {
      noted_.loaders.push_back(part.name);
    }
  }
}

// Grows with each change of the model. A captured step that fails counts as a change of its parameters, whether it has
// come to the update or not, so the optimisers' own numbers are better.
std::uint64_t StepNotes::updates() const {
  std::uint64_t updates = 0;
  std::uint64_t versions = 0;
  bool has_optimizer = false;
  for (const detail::Part& part : parts_.list()) {
    if (part.optimizer != nullptr) {
      has_optimizer = true;
      updates += static_cast<std::uint64_t>(part.optimizer->calls());
    }
  }
  for (const Tensor& parameter : parameters_) {
    versions += parameter.version();
  }
  return has_optimizer ? updates : versions;
}

void StepNotes::note_line(std::string line) {
  ++lines_;
  last_lines_.emplace_back(notes_, std::move(line));
}

void StepNotes::note(std::int64_t steps, std::int64_t epoch) {
  const NoGradGuard no_grad;
  noted_.steps = steps;
  noted_.epoch = epoch;
  noted_.lines = lines_;
  while (!last_lines_.empty() && last_lines_.front().first < notes_ - kNotesAhead) {
    last_lines_.pop_front();
  }
  ++notes_;
  noted_.own = parts_.own_state();
  small_ = parts_.small_state();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    tandem::detail::copy(buffers_[i].second.raw(), live_buffers_[i].second.raw());
  }
  noted_updates_ = updates();
}

RunMemory StepNotes::recall(const std::string& folder) const {
  const NoGradGuard no_grad;
  RunMemory memory = noted_;
  memory.folder = folder;
  memory.is_whole = updates() == noted_updates_;
  for (const auto& [notes, line] : last_lines_) {
    if (notes < notes_) {  // later lines belong to a step that is made again
      memory.last_lines.push_back(line);
    }
  }
  if (memory.is_whole) {
    memory.common = parts_.large_state();
    for (const Copies& copies : {buffers_, Copies(small_.begin(), small_.end())}) {
      for (const auto& [name, value] : copies) {
        memory.common.set(name, value);
      }
    }
  }
  return memory;
}

std::optional<CommonMemory> share_memories(const RankLink& ranks, const RunMemory* mine) {
  const bool is_whole = mine != nullptr && mine->is_whole;
  const auto largest = [&](double value) { return ranks.largest({value})[0]; };
  if (largest(mine != nullptr ? 1 : 0) == 0) {
    return std::nullopt;
  }
  const double steps = largest(is_whole ? static_cast<double>(mine->steps) : -1);
  check<ConfigError>(
      steps >= 0,
      "Run: a rank was lost, and on all others the model had changed since the last Run::step(), so that none of them "
      "has the state of a step. Call step() right after the optimiser's step, the schedule's and the average's; put "
      "exchanges of your own, and changes of the model, before or after them all");
  const bool is_first = is_whole && static_cast<double>(mine->steps) == steps;
  const double epoch = largest(is_first ? static_cast<double>(mine->epoch) : -1);
  const bool has_it = is_first && static_cast<double>(mine->epoch) == epoch;
  const int source = -static_cast<int>(largest(has_it ? -ranks.rank() : -ranks.size()));

  StateDict shared;
  Metadata texts;
  if (ranks.rank() == source) {
    shared = mine->common;
    for (const auto& [name, value] : mine->own) {
      shared.set(std::string(kSourcePrefix) + name, value);
    }
    texts = {{"lines", std::to_string(mine->lines)},
             {"last_lines", fmt::format("{}", fmt::join(mine->last_lines, ""))},
             {"folder", mine->folder},
             {"loaders", fmt::format("{}", fmt::join(mine->loaders, "\n"))}};
  }
  ranks.share(shared, texts, source);

  CommonMemory memory{.steps = static_cast<std::int64_t>(steps),
                      .epoch = static_cast<std::int64_t>(epoch),
                      .lines = std::atoll(text_of(texts, "lines").c_str()),
                      .last_lines = text_of(texts, "last_lines"),
                      .folder = text_of(texts, "folder"),
                      .source = source,
                      .state = {}};
  const std::string loaders = "\n" + text_of(texts, "loaders") + "\n";
  const bool keeps_numbers = mine != nullptr && mine->epoch == memory.epoch;
  const std::string prefix = fmt::format("rank.{}.", ranks.rank());
  for (const auto& [name, value] : shared) {
    if (!name.starts_with(kSourcePrefix)) {
      memory.state.set(name, value);
      continue;
    }
    const std::string own_name = name.substr(kSourcePrefix.size());
    const bool is_place = loaders.find(fmt::format("\n{}\n", part_in(own_name))) != std::string::npos;
    const Tensor* const own = mine == nullptr ? nullptr : mine->own.find(own_name);
    if (part_in(own_name) == kRandomPart) {
      if (own != nullptr) {  // a newcomer draws numbers of its own
        memory.state.set(prefix + own_name, *own);
      }
    } else {
      memory.state.set(prefix + own_name, !is_place && keeps_numbers && own != nullptr ? *own : value);
    }
  }
  return memory;
}

}  // namespace tandem::inline v0::checkpoint
