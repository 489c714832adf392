#pragma once

#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

/// A store in a folder that all ranks see, for tests and for "file://path". A key is a file, which is replaced as a
/// whole; changes are made under a lock that ends with the process that has it. Waiting looks again every few
/// milliseconds, and nobody is told when a rank dies: jobs that matter use a TcpStore.
class TANDEM_API FileStore final : public Store {
 public:
  /// Makes the folder where there is none, and writes down that `rank` is here. Each start of a job needs a fresh
  /// folder: throws ConfigError when this rank was here before. Throws IoError when the folder cannot be used.
  FileStore(std::string folder, int rank);

 private:
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_compare_set(std::string_view key, std::optional<std::string_view> expected, std::string_view desired,
                      Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;

  std::string file_of(std::string_view key) const;
  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view value) const;

  std::string folder_;
};

}  // namespace tandem::inline v0::parallel
