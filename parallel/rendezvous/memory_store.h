#pragma once

#include <memory>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

/// A store for ranks that are threads of one process, all of which use the same object.
class TANDEM_API MemoryStore final : public Store {
 public:
  MemoryStore();
  ~MemoryStore() override;

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::parallel
