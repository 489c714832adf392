#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <tandem/checkpoint/finite_watch.h>
#include <tandem/checkpoint/generations.h>
#include <tandem/checkpoint/rank_link.h>
#include <tandem/checkpoint/run.h>
#include <tandem/checkpoint/run_memory.h>
#include <tandem/checkpoint/run_parts.h>
#include <tandem/checkpoint/run_writer.h>
#include <tandem/checkpoint/signals.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/process_group.h>

// Internal: how a run begins, saves and looks around. run.cpp has what a program calls.

namespace tandem::inline v0::checkpoint {

// The requests that signals, and ranks that have come back, have made.
struct Run::Wishes {
  int signal = 0;          // that ends the run
  bool saves = false;      // SIGUSR1
  bool newcomers = false;  // ranks wait to be taken in
};

struct Run::Impl {
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kNone = -1;  // no step

  explicit Impl(const RunOptions& given);

  RunOptions options;
  RankLink ranks{};
  std::optional<RunSignals> signals{};
  std::optional<telemetry::RunFolder> folder{};  // on rank 0
  std::optional<Generations> generations{};      // on the ranks that write
  std::string path{};                            // of the folder
  RunParts parts{RunPlace{ranks.rank(), ranks.size()}};
  RunWriter writer{};
  bool begun = false;        // everything is tracked
  bool has_stepped = false;  // in this process
  bool in_epochs = false;
  bool saves_after_epoch = false;
  std::int64_t saves = 0;           // begun in this process
  std::int64_t saved_step = kNone;  // of the newest checkpoint, which may still be on its way to the disk
  std::int64_t saved_epoch = kNone;
  std::int64_t whole_step = kNone;  // of the newest one on the disk
  std::optional<FiniteWatch> watch{};
  int saves_done = RunSignals::saves();  // how many SIGUSR1 have been answered
  std::int64_t next_look = 1;
  std::int64_t last_look = 0;
  Clock::time_point last_look_at = Clock::now();
  parallel::ElasticRank* elastic = parallel::elastic_rank();           // null: the ranks stay the same
  const int number = elastic == nullptr ? 0 : elastic->next_number();  // of the run, in an elastic job
  std::optional<StepNotes> notes{};                                    // in an elastic job

  std::string checkpoints() const { return path + "/checkpoints"; }
  std::string suspect_file() const { return path + "/checkpoints/not-finite"; }

  void open(const std::string& given, bool goes_on);
  bool load(std::int64_t& step, std::int64_t& epoch);
  bool remember(std::int64_t& step, std::int64_t& epoch);
  void begin();
  void start_save(std::int64_t step, std::int64_t epoch);
  void agree_on_last_save();
  void finish_save();
  void report_failure();
  void check_finite(std::int64_t step, std::int64_t epoch, const Tensor* loss);
  Wishes look(std::int64_t step, bool asks_for_newcomers = false);
};

}  // namespace tandem::inline v0::checkpoint
