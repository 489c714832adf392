#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/checkpoint/run_parts.h>
#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/tensor/state_dict.h>

// Internal: a run that goes on in the same process with other ranks (parallel/comm/elastic_rank.h). Its Run is
// destroyed and made anew, and in between its state stays in memory.

namespace tandem::inline v0::checkpoint {

class RankLink;

/// A place in a run: after a step, or at the beginning of an epoch.
struct NotedPlace {
  std::int64_t epoch = 0;
  std::int64_t lines = 0;  // of metrics.jsonl
  StateDict small;         // what all ranks have in common and is not large: schedules, scalers, learning rates
  StateDict own;           // of this rank, as RunParts::own_state()
};

/// The state of a rank's run after a step.
struct RunMemory {
  std::int64_t steps = 0;
  int ranks = 1;
  NotedPlace place;
  std::optional<NotedPlace> before;     // the end of the epoch before, if `place` is the beginning of one
  std::vector<std::string> last_lines;  // of metrics.jsonl, as this rank would have written them
  bool has_logged = false;              // this rank has had lines at all
  std::string folder;
  int saves_done = 0;                // the requests to save that were answered
  bool is_whole = false;             // models and optimisers were still those of the step
  StateDict large;                   // these, if so. Refers to the tensors of the training
  std::vector<std::string> loaders;  // the names of parts of this kind
  std::vector<std::string> logs;     // the names of lists of numbers
};

/// Notes the state after each step. What an optimiser's step changes is not copied: a step that has been made since is
/// noticed, and another rank then has to give the state.
class StepNotes {
 public:
  /// The ranks are so many. `lines` of metrics.jsonl precede those of note_line().
  StepNotes(int ranks, std::int64_t lines) : ranks_(ranks), lines_(lines), first_line_(lines) {}

  /// Everything is tracked in `parts`.
  void begin(const RunParts& parts);
  /// The step `steps` of `epoch` has been made, or the epoch begins. After begin().
  void note(std::int64_t steps, std::int64_t epoch);
  /// Whether there was a note.
  bool has_noted() const noexcept { return notes_ > 0; }
  /// A line was added to metrics.jsonl, on rank 0. That rank may be lost before it writes the line, and then another
  /// one has to.
  void note_line(std::string line);
  /// The state of the last note.
  RunMemory recall(const std::string& folder, int saves_done) const;

 private:
  using Copies = std::vector<std::pair<std::string, Tensor>>;

  std::uint64_t updates() const;

  int ranks_;
  std::int64_t lines_;
  std::int64_t first_line_;
  std::deque<std::pair<std::int64_t, std::string>> last_lines_;  // with the number of notes before each
  const RunParts* parts_ = nullptr;
  std::vector<Tensor> parameters_;
  Copies live_buffers_;  // by their names in a checkpoint
  Copies buffers_;       // at the last note
  std::int64_t notes_ = 0;
  std::int64_t steps_ = -1;
  NotedPlace place_;
  std::optional<NotedPlace> before_;
  std::uint64_t noted_updates_ = 0;
};

/// The state with which all ranks of a new generation go on.
struct CommonMemory {
  std::int64_t steps = 0;
  std::int64_t epoch = 0;
  int ranks = 1;                      // that saved it
  std::optional<std::int64_t> lines;  // of metrics.jsonl, unless rank 0 alone knows ...
  std::string last_lines;             // ... and the last of them, which it may not have written
  std::string folder;
  std::string source;  // "rank 2"
  StateDict state;     // of a checkpoint, as this rank saved it
};

/// Agrees on a place in the run, and gives its state to all: the step is the last one that any rank has made, in the
/// epoch in which the slowest rank is. Random numbers and tracked numbers stay as they were on each rank. A rank
/// without a memory gets the lists of numbers from another one and keeps its other numbers. Empty if no rank has a
/// memory. Throws ConfigError if there are memories, and none is whole. A collective; `mine` is null on a rank without
/// one.
std::optional<CommonMemory> share_memories(const RankLink& ranks, const RunMemory* mine);

}  // namespace tandem::inline v0::checkpoint
