#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/tandem.h>

// Ranks that are threads connected by Gloo.

namespace tandem::test {

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

/// Runs `body` on the ranks of a group. Each rank leaves the group when its body ends.
inline std::vector<std::optional<CommError>> in_group(int ranks,
                                                      const std::function<void(parallel::ProcessGroup&)>& body,
                                                      std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                                      const std::shared_ptr<parallel::Alarm>& alarm = nullptr) {
  const auto store = std::make_shared<parallel::MemoryStore>();
  return on_threads(ranks, [&](int rank) {
    parallel::ProcessGroup group(parallel::gloo_backend({.store = store, .rank = rank, .size = ranks, .alarm = alarm}),
                                 {.timeout = timeout});
    body(group);
  });
}

}  // namespace tandem::test
