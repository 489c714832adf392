#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/tandem.h>

// Ranks that are threads connected by Gloo.

namespace tandem::test {

inline void expect_no_errors(const std::vector<std::optional<CommError>>& errors) {
  for (const auto& error : errors) {
    EXPECT_FALSE(error) << error->what();
  }
}

/// Runs body(rank) on one thread for each rank. Returns the CommError of each rank.
inline std::vector<std::optional<CommError>> on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::optional<CommError>> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const CommError& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

/// Runs `body` on the ranks of a group; rank r is on host hosts[r], for which an address stands. Each rank leaves the
/// group when its body ends. `change` changes a rank's options.
inline std::vector<std::optional<CommError>> on_hosts(
    const std::vector<int>& hosts, const std::function<void(parallel::ProcessGroup&)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(20),
    const std::function<void(parallel::GlooOptions&)>& change = [](parallel::GlooOptions&) {}) {
  const auto store = std::make_shared<parallel::MemoryStore>();
  const int ranks = static_cast<int>(hosts.size());
  return on_threads(ranks, [&](int rank) {
    parallel::GlooOptions options{.store = store, .rank = rank, .size = ranks};
    options.address = "127.0.0." + std::to_string(hosts[static_cast<std::size_t>(rank)] + 1);
    change(options);
    parallel::ProcessGroup group(parallel::gloo_backend(std::move(options)), {.timeout = timeout});
    body(group);
  });
}

/// Runs `body` on ranks of one host.
inline std::vector<std::optional<CommError>> in_group(int ranks,
                                                      const std::function<void(parallel::ProcessGroup&)>& body,
                                                      std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                                      const std::shared_ptr<parallel::Alarm>& alarm = nullptr) {
  return on_hosts(std::vector<int>(static_cast<std::size_t>(ranks)), body, timeout,
                  [&](parallel::GlooOptions& options) { options.alarm = alarm; });
}

}  // namespace tandem::test
