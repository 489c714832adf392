#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/checkpoint/safetensors.h>
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

/// The files `<folder>/step-<step>.safetensors`, and beside each perhaps `step-<step>.shard-<rank>.safetensors`. The
/// process that opened the folder last is its only writer. An earlier process that still lives, as behind a cut link,
/// stops writing.
class TANDEM_API Generations {
 public:
  /// Makes the folder and takes it over. Throws IoError.
  explicit Generations(std::string folder, core::FileOps& ops = core::FileOps::system());
  /// Writes into a folder that another rank of this run has taken over, as `owner`.
  Generations(std::string folder, std::string owner, core::FileOps& ops = core::FileOps::system());

  /// The owner that this object stands for.
  const std::string& owner() const noexcept { return owner_; }

  /// Whether a run has ever been in the folder.
  static bool is_used(const std::string& folder);
  /// The steps of all checkpoints, the newest first.
  static std::vector<std::int64_t> steps_in(const std::string& folder);
  /// The file with the checkpoint of a step.
  static std::string path_in(const std::string& folder, std::int64_t step);
  /// Shows `visit` the files of a step's checkpoint, one after another: that one, then its shards. Throws IoError if
  /// one is missing, or is not of the same save.
  static void for_each_file(const std::string& folder, std::int64_t step,
                            const std::function<void(const std::string& path, const SafetensorsFile& file)>& visit);

  /// The newest checkpoint that is whole. `on_damage` gets the error of each that is passed over. Without any
  /// checkpoint the path is empty. Throws IoError if all are damaged.
  static Generation newest_whole(const std::string& folder,
                                 const std::function<void(const std::string& problem)>& on_damage);

  /// Writes a checkpoint, and then removes all older ones but the `keep` newest. If the checkpoint has shards, waits
  /// for them first. Throws IoError. Throws ConfigError if the folder has another owner, and then nothing is written.
  void write(std::int64_t step, const StateDict& state, const Metadata& metadata, int keep);
  /// Writes the shard of rank `rank` > 0. write() recognises the shard by `session`, a text that only the files of one
  /// checkpoint share. Throws the errors of write().
  void write_shard(std::int64_t step, int rank, const StateDict& state, const std::string& session);
  /// Tells write() on rank 0 that this shard will not come.
  void give_up_shard(std::int64_t step, int rank, const std::string& session) const;

 private:
  void check_owner() const;
  void wait_for_shards(std::int64_t step, const Metadata& metadata) const;

  std::string folder_;
  std::string owner_;  // the text in the file "owner"
  core::FileOps* ops_;
};

}  // namespace tandem::inline v0::checkpoint
