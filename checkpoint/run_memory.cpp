#include <tandem/checkpoint/run_memory.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
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
// step, of the beginning of an epoch, and of the next step.
constexpr std::int64_t kNotesAhead = 3;

// The part of "loader.epoch".
std::string_view part_in(std::string_view name) { return name.substr(0, name.find('.')); }

bool has(const std::string& lines, std::string_view name) {
  return ("\n" + lines + "\n").find(fmt::format("\n{}\n", name)) != std::string::npos;
}

}  // namespace

void StepNotes::begin(const RunParts& parts) {
  parts_ = &parts;
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
  }
}

// Grows with each change of models and averages. A captured step that fails counts as a change of its parameters,
// whether it has come to the update or not, so the optimisers' own numbers are better.
std::uint64_t StepNotes::updates() const {
  std::int64_t updates = 0;
  std::uint64_t versions = 0;
  bool has_optimizer = false;
  for (const detail::Part& part : parts_->list()) {
    has_optimizer = has_optimizer || part.optimizer != nullptr;
    updates += part.optimizer != nullptr ? part.optimizer->calls() : 0;
    updates += part.average != nullptr ? part.average->num_updates() : 0;
  }
  for (const Tensor& parameter : parameters_) {
    versions += parameter.version();
  }
  return static_cast<std::uint64_t>(updates) + (has_optimizer ? 0 : versions);
}

void StepNotes::note_line(std::string line) {
  ++lines_;
  last_lines_.emplace_back(notes_, std::move(line));
}

void StepNotes::note(std::int64_t steps, std::int64_t epoch) {
  const NoGradGuard no_grad;
  while (!last_lines_.empty() && last_lines_.front().first < notes_ - kNotesAhead) {
    last_lines_.pop_front();
  }
  before_.reset();
  if (has_noted() && steps == steps_ && epoch == place_.epoch + 1) {
    before_ = std::move(place_);
  }
  ++notes_;
  steps_ = steps;
  place_ = {.epoch = epoch, .lines = lines_, .small = parts_->small_state(), .own = parts_->own_state()};
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    tandem::detail::copy(buffers_[i].second.raw(), live_buffers_[i].second.raw());
  }
  noted_updates_ = updates();
}

RunMemory StepNotes::recall(const std::string& folder, int saves_done) const {
  const NoGradGuard no_grad;
  RunMemory memory{.steps = steps_,
                   .ranks = ranks_,
                   .place = place_,
                   .before = before_,
                   .last_lines = {},
                   .has_logged = lines_ > first_line_,
                   .folder = folder,
                   .saves_done = saves_done,
                   .is_whole = updates() == noted_updates_,
                   .large = {},
                   .loaders = {},
                   .logs = {}};
  for (const auto& [notes, line] : last_lines_) {
    if (notes < notes_) {  // later lines belong to what is done again
      memory.last_lines.push_back(line);
    }
  }
  for (const detail::Part& part : parts_->list()) {
    if (part.loader != nullptr) {
      memory.loaders.push_back(part.name);
    } else if (part.is_log) {
      memory.logs.push_back(part.name);
    }
  }
  if (memory.is_whole) {
    memory.large = parts_->large_state();
    for (const auto& [name, value] : buffers_) {
      memory.large.set(name, value);
    }
  }
  return memory;
}

std::optional<CommonMemory> share_memories(const RankLink& ranks, const RunMemory* mine) {
  constexpr double kNone = -1e18;
  const auto largest = [&](double value) { return ranks.largest({value})[0]; };
  if (largest(mine != nullptr ? 1 : 0) == 0) {
    return std::nullopt;
  }
  // The slowest rank is at most an epoch's end behind the others, which remember the place before.
  const auto epoch =
      static_cast<std::int64_t>(-largest(mine != nullptr ? -static_cast<double>(mine->place.epoch) : kNone));
  const NotedPlace* const place = mine == nullptr                                         ? nullptr
                                  : mine->place.epoch > epoch && mine->before.has_value() ? &*mine->before
                                                                                          : &mine->place;
  const bool is_whole = mine != nullptr && mine->is_whole && place->epoch == epoch;
  const double steps = largest(is_whole ? static_cast<double>(mine->steps) : -1);
  check<ConfigError>(
      steps >= 0,
      "Run: a rank was lost, and on all others the model had changed since the last Run::step(), so that none of them "
      "has the state of a step. Call step() right after the optimiser's step, the schedule's and the average's; put "
      "exchanges of your own, and changes of the model, before or after them all");
  const bool has_it = is_whole && static_cast<double>(mine->steps) == steps;
  const int source = -static_cast<int>(largest(has_it ? -ranks.rank() : -ranks.size()));

  StateDict shared;
  Metadata texts;
  if (ranks.rank() == source) {
    shared = mine->large;
    for (const auto& [name, value] : place->small) {
      shared.set(name, value);
    }
    for (const auto& [name, value] : place->own) {
      shared.set(std::string(kSourcePrefix) + name, value);
    }
    const std::int64_t later = std::min(mine->place.lines - place->lines, std::ssize(mine->last_lines));
    const std::vector<std::string> last(mine->last_lines.begin(), mine->last_lines.end() - later);
    texts = {{"ranks", std::to_string(mine->ranks)},
             {"lines", mine->has_logged ? std::to_string(place->lines) : ""},
             {"last_lines", fmt::format("{}", fmt::join(last, ""))},
             {"folder", mine->folder},
             {"source", ranks.name()},
             {"loaders", fmt::format("{}", fmt::join(mine->loaders, "\n"))},
             {"logs", fmt::format("{}", fmt::join(mine->logs, "\n"))}};
  }
  ranks.share(shared, texts, source);

  const std::string lines = text_of(texts, "lines");
  CommonMemory memory{.steps = static_cast<std::int64_t>(steps),
                      .epoch = epoch,
                      .ranks = std::atoi(text_of(texts, "ranks").c_str()),
                      .lines = lines.empty() ? std::nullopt : std::optional<std::int64_t>(std::atoll(lines.c_str())),
                      .last_lines = text_of(texts, "last_lines"),
                      .folder = text_of(texts, "folder"),
                      .source = text_of(texts, "source"),
                      .state = {}};
  const std::string prefix = fmt::format("rank.{}.", ranks.rank());
  for (const auto& [name, value] : shared) {
    if (!name.starts_with(kSourcePrefix)) {
      memory.state.set(name, value);
      continue;
    }
    const std::string own_name = name.substr(kSourcePrefix.size());
    const std::string_view part = part_in(own_name);
    const Tensor* const own = place == nullptr ? nullptr : place->own.find(own_name);
    if (has(text_of(texts, "loaders"), part) || (own == nullptr && has(text_of(texts, "logs"), part))) {
      memory.state.set(prefix + own_name, value);
    } else if (own != nullptr) {
      memory.state.set(prefix + own_name, *own);
    }
  }
  return memory;
}

}  // namespace tandem::inline v0::checkpoint
