#include <tandem/checkpoint/run_impl.h>

#include <algorithm>
#include <any>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/span.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/job_token.h>

// All ranks must save, and stop, after the same step. They agree on that in look(), about ten times a second: each time
// they also agree on the number of steps until the next time, so that no step has to ask.

namespace tandem::inline v0::checkpoint {

namespace {

constexpr double kLookSeconds = 0.1;
constexpr std::int64_t kMostStepsBetweenLooks = 1000;

std::int64_t number_of(const Metadata& metadata, std::string_view key, const std::string& path) {
  const std::string text = text_of(metadata, key);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check<IoError>(error == std::errc() && end == text.data() + text.size() && number >= 0,
                 "'{}': this is no checkpoint of a run: its '{}' is '{}', expected a number", path, key, text);
  return number;
}

// A name for the run within the launcher's job, if the launcher restarts jobs. Processes that do not train together,
// and runs of one process, have folders of their own.
std::string job_name(const std::string& program, std::optional<int> given) {
  static std::atomic<int> runs{0};
  const int number = given ? *given : runs.fetch_add(1);
  const std::string id = parallel::process_environment("TORCHELASTIC_RUN_ID").value_or("none");
  const std::string rank = parallel::is_initialized() ? std::to_string(parallel::get_rank())
                                                      : parallel::process_environment("RANK").value_or("0");
  return id == "none" ? ""  // torchrun's default, which other jobs have too
                      : fmt::format("{} rank {} run {} {}\n", id, rank, number, program);
}

void check_options(const RunOptions& options) {
  if (options.sharded) {
    parallel::check_not_elastic("Run with .sharded", "its part of the checkpoints");
  }
  check<ConfigError>(options.every >= 0 && options.keep >= 1, "Run: expected every >= 0 and keep >= 1, got {} and {}",
                     options.every, options.keep);
}

}  // namespace

Run::Impl::Impl(const RunOptions& given) : options(given) { check_options(options); }

// On rank 0.
void Run::Impl::open(const std::string& given, bool goes_on) {
  const std::string program = options.program.empty() ? "run" : options.program;
  const std::string job = job_name(program, elastic == nullptr ? std::nullopt : std::optional(number));
  folder.emplace(telemetry::RunFolderOptions{.program = program, .path = given, .reuse = goes_on, .job = job});
  path = folder->path();
  generations.emplace(checkpoints());
}

// Loads the newest checkpoint on all ranks. Returns whether there is one.
bool Run::Impl::load(std::int64_t& step, std::int64_t& epoch) {
  StateDict loaded;
  Metadata texts;
  if (ranks.leads()) {
    Generation newest = Generations::newest_whole(checkpoints(), [](const std::string& problem) {
      core::warn(fmt::format("passing over a damaged checkpoint: {}", problem));
    });
    loaded = std::move(newest.state);
    if (newest.path.empty() && folder->metrics_bytes() > 0) {
      core::warn(fmt::format("'{}' has no checkpoint yet: the run begins anew", path));
    }
    for (const char* name : {"step", "epoch", "ranks", "metrics_bytes"}) {
      texts.emplace_back(name, text_of(newest.metadata, name));
    }
    folder->cut_metrics(newest.path.empty() ? 0 : number_of(texts, "metrics_bytes", newest.path));
    texts.emplace_back("path", newest.path);
    texts.emplace_back("folder", path);
    texts.emplace_back("owner", generations->owner());
    texts.emplace_back("suspect", std::to_string(FiniteWatch::read_suspect(suspect_file())));
    texts.emplace_back("lines", std::to_string(folder->metrics_lines()));
  }
  ranks.share(loaded, texts);
  if (elastic != nullptr) {
    notes.emplace(ranks.size(), std::atoll(text_of(texts, "lines").c_str()));
  }
  path = text_of(texts, "folder");
  if (!ranks.leads() && options.sharded) {
    generations.emplace(checkpoints(), text_of(texts, "owner"));
  }
  watch.emplace(options.stop_at_nonfinite, std::atoll(text_of(texts, "suspect").c_str()));
  const std::string from = text_of(texts, "path");
  if (from.empty()) {
    return false;
  }
  step = number_of(texts, "step", from);
  epoch = number_of(texts, "epoch", from);
  parts.restore_from(std::move(loaded), from, static_cast<int>(number_of(texts, "ranks", from)));
  parts.restore_random();
  saved_step = whole_step = last_look = step;
  saved_epoch = epoch;
  next_look = step + 1;
  return true;
}

// Takes over the state that another generation of ranks has left. Returns whether there is one.
bool Run::Impl::remember(std::int64_t& step, std::int64_t& epoch) {
  if (elastic == nullptr || elastic->generation() == 0) {
    return false;
  }
  // The memory stays until the first note of this generation: ranks may be lost before.
  const auto* mine = std::any_cast<RunMemory>(&elastic->memory(number));
  std::optional<CommonMemory> memory = share_memories(ranks, mine);
  if (!memory) {
    return false;
  }
  saves_done = mine != nullptr ? mine->saves_done : saves_done;
  path = memory->folder;
  step = memory->steps;
  epoch = memory->epoch;
  notes.emplace(ranks.size(), memory->lines.value_or(0));
  if (ranks.leads()) {
    open(path, true);
    if (memory->lines) {
      folder->set_metrics_lines(*memory->lines, memory->last_lines);
    }
  }
  watch.emplace(options.stop_at_nonfinite, kNone);
  parts.restore_from(std::move(memory->state), "the memory of " + memory->source, memory->ranks, true);
  parts.restore_random();
  last_look = step;
  next_look = step + 1;
  return true;
}

// Before the first step, once everything is tracked.
void Run::Impl::begin() {
  if (!begun) {
    parts.finish_restoring();
    if (notes) {
      notes->begin(parts);
    }
    last_look_at = Clock::now();
    watch->after(last_look);
    begun = true;
  }
}

// All ranks look in the same steps, and see the same.
Run::Wishes Run::Impl::look(std::int64_t step, bool asks_for_newcomers) {
  const bool is_alone = ranks.size() == 1;  // then looking costs nothing
  const bool is_asked = signals && (RunSignals::stop() != 0 || RunSignals::saves() != saves_done);
  if (step < next_look && !(is_alone && is_asked)) {
    return {};
  }
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_look_at).count() /
                         static_cast<double>(std::max(step - last_look, std::int64_t{1}));
  const bool listens = signals.has_value();
  const bool newcomers = asks_for_newcomers && ranks.leads() && elastic->newcomers_wait();
  std::vector<double> largest =
      ranks.largest({listens ? static_cast<double>(RunSignals::stop()) : 0,
                     listens && RunSignals::saves() != saves_done ? 1.0 : 0.0, seconds, newcomers ? 1.0 : 0.0});
  // Steps may become slower: the distance grows only slowly.
  const std::int64_t most = std::min(2 * std::max(step - last_look, std::int64_t{1}), kMostStepsBetweenLooks);
  next_look =
      step + std::clamp(static_cast<std::int64_t>(kLookSeconds / std::max(largest[2], 1e-9)), std::int64_t{1}, most);
  last_look = step;
  last_look_at = now;
  return {.signal = static_cast<int>(largest[0]), .saves = largest[1] != 0, .newcomers = largest[3] != 0};
}

void Run::Impl::check_finite(std::int64_t step, std::int64_t epoch, const Tensor* loss) {
  const bool is_due = options.every > 0 && step % options.every == 0;
  const std::string wrong = watch->what_is_wrong(parts, loss, step >= next_look || is_due);
  if (wrong.empty()) {
    return;
  }
  report_failure();  // waits for the checkpoint that is being written
  try {
    FiniteWatch::write_suspect(suspect_file(), step);  // perhaps only this rank knows
  } catch (const IoError& error) {
    core::warn(fmt::format("the step is not noted for the next process: {}", error.what()));
  }
  fail<ValueError>(
      "step {} (epoch {}): {}. {}. Resumed, the run looks at this step, and names the layer that has the "
      "first such value",
      step, epoch, wrong,
      whole_step >= 0 ? fmt::format("The checkpoint of step {} in {} is not touched by this", whole_step, path)
                      : "No checkpoint was written yet");
}

void Run::Impl::start_save(std::int64_t step, std::int64_t epoch) {
  const SpanScope traced({.name = "checkpoint"});
  const NoGradGuard no_grad;
  agree_on_last_save();
  ranks.compare(parts.parameters());
  const std::vector<StateDict> of_ranks = ranks.gather(parts.own_state());
  saved_step = step;
  saved_epoch = epoch;
  ++saves;
  if (!ranks.leads() && !options.sharded) {
    parts.help_with_snapshot();
    return;
  }
  StateDict state = parts.snapshot(of_ranks, options.sharded);
  core::failpoint("save.copied");
  Metadata texts{{"step", std::to_string(step)},
                 {"epoch", std::to_string(epoch)},
                 {"ranks", std::to_string(ranks.size())},
                 {"metrics_bytes", std::to_string(folder ? folder->metrics_bytes() : 0)}};
  const std::string session = fmt::format("{} {} {}", generations->owner(), step, saves);
  if (options.sharded) {
    texts.emplace_back(kShards, std::to_string(ranks.size()));
    texts.emplace_back(kSession, session);
  }
  writer.start(
      [this, step, session, state = std::move(state), texts = std::move(texts)] {
        try {
          const std::string bad = parts.first_bad(state);
          check<ValueError>(bad.empty(),
                            "step {}: '{}' is not finite, so this state was not saved; the checkpoints before it are "
                            "as they were",
                            step, bad);
          if (ranks.leads()) {
            generations->write(step, state, texts, options.keep);
          } else {
            generations->write_shard(step, ranks.rank(), state, session);
          }
        } catch (...) {
          if (!ranks.leads()) {
            generations->give_up_shard(step, ranks.rank(), session);
          }
          throw;
        }
      },
      options.async_save);
}

// Before the next save. A full disk does not end a training that may go on without a checkpoint; weights that are not
// finite do, and so does another owner of the folder: on all ranks.
void Run::Impl::agree_on_last_save() {
  std::exception_ptr error;
  try {
    report_failure();
  } catch (...) {
    error = std::current_exception();
  }
  const bool has_failed = ranks.largest({error ? 1.0 : 0.0})[0] != 0;
  if (error) {
    std::rethrow_exception(error);
  }
  check<ValueError>(!has_failed, "the last checkpoint was refused, as another rank's error says");
}

// Waits until the checkpoint is on the disk. Throws on all ranks if one could not write.
void Run::Impl::finish_save() {
  const std::exception_ptr error = writer.wait();
  const bool has_failed = ranks.largest({error ? 1.0 : 0.0})[0] != 0;
  whole_step = has_failed ? whole_step : saved_step;
  saved_step = has_failed ? kNone : saved_step;
  if (error) {
    std::rethrow_exception(error);
  }
  check<IoError>(!has_failed, "the checkpoint could not be written, as another rank's error says");
}

// Waits for the last checkpoint. Warns if the system did not take it, and throws other errors.
void Run::Impl::report_failure() {
  if (const std::exception_ptr error = writer.wait()) {
    saved_step = kNone;
    try {
      std::rethrow_exception(error);
    } catch (const IoError& failure) {
      core::warn(
          fmt::format("a checkpoint could not be written, and the training goes on without it: {}", failure.what()));
    }
  } else if (saved_step != kNone) {
    whole_step = saved_step;
  }
}

}  // namespace tandem::inline v0::checkpoint
