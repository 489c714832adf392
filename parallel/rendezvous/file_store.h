#pragma once

#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

/// A store in a folder that all ranks can access, for tests and for "file://path". Each key is a file that is replaced
/// as a whole. Changes happen under a lock that the system releases when its owner dies. A wait polls every few
/// milliseconds, and no rank learns of another's death: production jobs should use a TcpStore.
class TANDEM_API FileStore final : public Store {
 public:
  /// Creates the folder if needed and records the presence of `rank`. Each start of a job needs a new folder: throws
  /// ConfigError if this rank was recorded before. Throws IoError if the folder cannot be used.
  FileStore(std::string folder, int rank);

 private:
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;

  std::string file_of(std::string_view key) const;
  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view value) const;

  std::string folder_;
};

}  // namespace tandem::inline v0::parallel
