#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/core/export.h>
#include <tandem/core/file_ops.h>
#include <tandem/tensor/state_dict.h>

// Internal: the numbered checkpoints in a folder.

namespace tandem::inline v0::checkpoint {

/// A checkpoint as it was read.
struct Generation {
  StateDict state;
  Metadata metadata;
  std::string path;
};

/// The files `<folder>/step-<step>.safetensors`. There is one writer: whoever opened the folder last. A process that
/// another one has replaced, and that still lives behind a cut link, no longer writes.
class TANDEM_API Generations {
 public:
  /// Makes the folder and takes it over. Throws IoError.
  explicit Generations(std::string folder, core::FileOps& ops = core::FileOps::system());

  /// The steps of all checkpoints, the newest first.
  static std::vector<std::int64_t> steps_in(const std::string& folder);
  /// The file with the checkpoint of a step.
  static std::string path_in(const std::string& folder, std::int64_t step);

  /// The newest checkpoint that is whole. `on_damage` gets the error of each that is passed over. Without any
  /// checkpoint the path is empty. Throws IoError if all are damaged.
  static Generation newest_whole(const std::string& folder,
                                 const std::function<void(const std::string& problem)>& on_damage);

  /// Writes a checkpoint, and then removes all but the `keep` newest ones. Throws IoError. Throws ConfigError if the
  /// folder has another owner, and then nothing is written.
  void write(std::int64_t step, const StateDict& state, const Metadata& metadata, int keep);

 private:
  void check_owner() const;

  std::string folder_;
  std::string owner_;  // a text of our own in the file "owner"
  core::FileOps* ops_;
};

}  // namespace tandem::inline v0::checkpoint
