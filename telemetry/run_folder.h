#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <tandem/core/export.h>
#include <tandem/telemetry/fields.h>

namespace tandem::inline v0::telemetry {

/// Where a run folder goes.
struct RunFolderOptions {
  std::string program = {};     ///< names the folder when no path is given: "mlp"
  std::string path = {};        ///< exactly this folder, which must be new or empty; or empty text for a new one
  std::string parent = "runs";  ///< where new folders are made when no path is given
};

/// One folder for all that one run leaves behind.
///
/// Every failure of the system is an IoError that names the path, the operation and the reason. Belongs to one thread.
class TANDEM_API RunFolder {
 public:
  /// Creates the folder, with its parents: `options.path`, or `parent/program-yyyymmdd-hhmmss` in local time, with
  /// -2, -3, ... behind it when that name is taken: runs started in the same second each get their own.
  /// Throws IoError when `options.path` exists and is not an empty folder, or nothing can be created; ConfigError
  /// when there is neither a path nor a program name, or the name has a '/'.
  explicit RunFolder(const RunFolderOptions& options);
  ~RunFolder();
  RunFolder(RunFolder&&) noexcept;
  RunFolder& operator=(RunFolder&&) noexcept;

  /// The folder, as given or as made up: relative when that was.
  const std::string& path() const noexcept;
  /// path()/name, for writers that take a path. Throws ConfigError unless `name` is a plain file name.
  std::string file(std::string_view name) const;

  /// Writes config.json, one object; whole or not at all.
  void write_config(const Fields& fields);

  /// Appends one object on a line of its own to metrics.jsonl. The line is handed to the system before the call
  /// returns, so a run that is killed keeps what it had. After an IoError the file still has whole lines only.
  void append_metrics(const Fields& fields);

  /// Writes (or replaces) a file in the folder; whole or not at all.
  void write_file(std::string_view name, std::string_view bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::telemetry
