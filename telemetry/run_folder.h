#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// The value of a field in a JSON object. JSON has no NaN and no infinity: such a double is written as null. In text
/// that is not UTF-8, U+FFFD replaces the bad bytes.
using FieldValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

/// One name and value in a JSON object.
struct Field {
  std::string name;  // key in the object
  FieldValue value;  // value under that key
};

/// Fields in the order of writing: {{"epoch", 3}, {"loss", 0.143}}. If a name repeats, the later value counts.
using Fields = std::vector<Field>;

/// The object as JSON text: on one line, or with one field per line, indented by `indent` spaces.
TANDEM_API std::string to_json(const Fields& fields, int indent = -1);

/// Reads a file with one JSON object, such as config.json; null is NaN. Throws IoError if it is not one, or if a value
/// is of none of the types of FieldValue.
TANDEM_API Fields read_json(const std::string& path);

/// Reads a file with one JSON object on each line, such as metrics.jsonl. A last line without its end, which a killed
/// program may have left, is left out. Throws IoError as read_json() does.
TANDEM_API std::vector<Fields> read_json_lines(const std::string& path);

/// Options of RunFolder.
struct RunFolderOptions {
  std::string program = {};     ///< prefix of the folder's name if no path is given: "mlp"
  std::string path = {};        ///< this folder, which must be new or empty; empty text: a new one in `parent`
  std::string parent = "runs";  ///< place of new folders if no path is given
  bool reuse = false;           ///< `path` may also be the folder of an earlier run, which goes on there
  /// A name of the job, for one that is restarted: the folder that it has made before is used again. Empty: none.
  std::string job = {};
};

/// One folder for all output of one run.
///
/// One process at a time may use a folder. Every failure of the system is an IoError that names the path, the operation
/// and the reason. Belongs to one thread.
class TANDEM_API RunFolder {
 public:
  /// Creates the folder and its parents: `options.path`, or `parent/program-yyyymmdd-hhmmss` in local time. If that
  /// name is taken, -2, -3, ... is appended, so that runs started in the same second get folders of their own. Throws
  /// IoError when `options.path` exists and is not an empty folder (see `reuse` and `job`), when another run uses it,
  /// or when creation fails; ConfigError when there is neither a path nor a program name, or the name contains '/'.
  explicit RunFolder(const RunFolderOptions& options);
  ~RunFolder();
  RunFolder(RunFolder&&) noexcept;
  RunFolder& operator=(RunFolder&&) noexcept;

  /// The folder, as given or as generated; relative if the given path was.
  const std::string& path() const noexcept;
  /// path()/name, for writers that take a path. Throws ConfigError unless `name` is a plain file name.
  std::string file(std::string_view name) const;

  /// Writes config.json, one object, completely or not at all; and environment.json: versions, machine, time, and the
  /// git commit of the folder that the program was started in.
  void write_config(const Fields& fields);

  /// Appends one object as a line of its own to metrics.jsonl. The line reaches the operating system before the call
  /// returns, so a killed run keeps its lines. After an IoError the file still has only complete lines. TensorBoard
  /// gets the numbers, too: `tensorboard --logdir` with this folder or its parent. Their step is the field "step", else
  /// "epoch", else the number of the line, from 1.
  void append_metrics(const Fields& fields);
  /// The length of metrics.jsonl in bytes.
  std::int64_t metrics_bytes() const;
  /// Shortens metrics.jsonl to that many bytes, so that an earlier state of the run goes on from there; a shorter file
  /// stays as it is. Throws IoError.
  void cut_metrics(std::int64_t bytes);
  /// The number of lines in metrics.jsonl.
  std::int64_t metrics_lines() const;
  /// Makes metrics.jsonl have that many lines, of which `last` has the last ones: cuts off what comes after them, and
  /// adds what is missing. Throws IoError.
  void set_metrics_lines(std::int64_t lines, std::string_view last);

  /// Writes (or replaces) a file in the folder, completely or not at all.
  void write_file(std::string_view name, std::string_view bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::telemetry
