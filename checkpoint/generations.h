#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

/// Metadata of a checkpoint with shards: their number, the first one in the file itself, and their session.
inline constexpr std::string_view kShards = "shards";
inline constexpr std::string_view kSession = "session";

/// The files `<folder>/step-<step>.safetensors`, and beside each perhaps `step-<step>.shard-<rank>.safetensors`. There
/// is one writer: whoever opened the folder last. A process that another one has replaced, and that still lives behind
/// a cut link, no longer writes.
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

  /// Writes a checkpoint, and then removes all but the `keep` newest ones. If it has shards, waits for them first.
  /// Throws IoError. Throws ConfigError if the folder has another owner, and then nothing is written.
  void write(std::int64_t step, const StateDict& state, const Metadata& metadata, int keep);

  /// Writes the part of a checkpoint that rank `rank` > 0 writes. The checkpoint is there once write() has ended, which
  /// finds the shard by `session`, a text that is the same for all files of this checkpoint and no others.
  static void write_shard(const std::string& folder, std::int64_t step, int rank, const StateDict& state,
                          const std::string& session);
  /// A random text for that.
  static std::string new_session();

 private:
  void check_owner() const;

  std::string folder_;
  std::string owner_;  // a text of our own in the file "owner"
  core::FileOps* ops_;
};

}  // namespace tandem::inline v0::checkpoint
