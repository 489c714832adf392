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

/// The state of a rank's run after a step.
struct RunMemory {
  std::int64_t steps = 0;
  std::int64_t epoch = 0;
  std::int64_t lines = 0;               // of metrics.jsonl
  std::vector<std::string> last_lines;  // of these, as this rank would have written them
  std::string folder;
  bool is_whole = false;             // models and optimisers were still those of the step, too
  StateDict common;                  // of all ranks; only if it is whole. Refers to the tensors of the training
  StateDict own;                     // of this rank, as RunParts::own_state()
  std::vector<std::string> loaders;  // the names of the loaders among `own`
};

/// Notes the state after each step. What an optimiser's step changes is not copied: a step that has been made since is
/// noticed, and another rank then has to give the state.
class StepNotes {
 public:
  /// metrics.jsonl has so many lines.
  StepNotes(const RunParts& parts, std::int64_t lines);

  /// The step `steps` of `epoch` has been made.
  void note(std::int64_t steps, std::int64_t epoch);
  /// A line was added to metrics.jsonl, on rank 0. That rank may be lost before it writes the line, and then another
  /// one has to.
  void note_line(std::string line);
  /// The state after the noted step.
  RunMemory recall(const std::string& folder) const;

 private:
  using Copies = std::vector<std::pair<std::string, Tensor>>;

  std::uint64_t updates() const;

  const RunParts& parts_;
  std::vector<Tensor> parameters_;
  std::int64_t lines_;
  std::deque<std::pair<std::int64_t, std::string>> last_lines_;  // with the number of notes before each
  std::int64_t notes_ = 0;
  Copies live_buffers_;  // by their names in a checkpoint
  Copies buffers_;       // after the noted step
  RunMemory noted_;
  StateDict small_;  // schedules, scalers and what the program tracks
  std::uint64_t noted_updates_ = 0;
};

/// The state with which all ranks of a new generation go on.
struct CommonMemory {
  std::int64_t steps = 0;
  std::int64_t epoch = 0;
  std::int64_t lines = 0;  // of metrics.jsonl ...
  std::string last_lines;  // ... and the last of them, which rank 0 may not have written
  std::string folder;
  int source = 0;   // the rank that had the state
  StateDict state;  // of a checkpoint, as this rank of so many saved it
};

/// Agrees on the state of the rank that has made the most steps, and gives it to all. What belongs to a rank stays as
/// it was there, but the place in the data is that of the source, and a rank that was not in the source's epoch takes
/// its numbers, too. Empty if no rank has a memory. Throws ConfigError if there are memories, and none is whole. A
/// collective; `mine` is null on a rank without a memory.
std::optional<CommonMemory> share_memories(const RankLink& ranks, const RunMemory* mine);

}  // namespace tandem::inline v0::checkpoint
