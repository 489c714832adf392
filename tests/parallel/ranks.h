#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tandem.h>

#include "support/message.h"

namespace tandem::test {

/// The backend of as_ranks(): "local", or the value of TANDEM_TEST_BACKEND, which is "gloo" or "gloo-tcp" (without
/// shared memory) in the tests that ctest calls gloo/... and gloo-tcp/...
inline std::string_view tested_backend() {
  const char* wanted = std::getenv("TANDEM_TEST_BACKEND");
  return wanted == nullptr ? "local" : wanted;
}

/// Runs `body` on `ranks` threads that are connected by Gloo.
inline void as_gloo_ranks(int ranks, const std::function<void(parallel::ProcessGroup&)>& body,
                          std::chrono::milliseconds timeout) {
  const auto store = std::make_shared<parallel::MemoryStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        parallel::ProcessGroup group(
            parallel::gloo_backend(
                {.store = store, .rank = rank, .size = ranks, .shared_memory = tested_backend() == "gloo"}),
            {.timeout = timeout});
        const parallel::RankContext context{&group};
        Generator generator;  // as ranks have
        const core::ThreadStateScope scope({.generator = &generator, .rank = &context});
        body(group);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

/// Runs `body` as `ranks` ranks with a deadline: each on its own CPU device, or all on the test's GPU.
inline void as_ranks(int ranks, const std::function<void(parallel::ProcessGroup&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  if (tested_backend().starts_with("gloo")) {
    return as_gloo_ranks(ranks, body, timeout);
  }
  const Device device = core::thread_state().device;
  const std::size_t on_gpu = device.type == DeviceType::cuda ? static_cast<std::size_t>(ranks) : 0;
  parallel::spawn(ranks, body, {.devices = std::vector<Device>(on_gpu, device), .group = {.timeout = timeout}});
}

/// Backends for ranks that are threads.
enum class Carrier {
  local,          // on one GPU, if the test uses a GPU
  local_of_gpus,  // on two GPUs in turn
  staged,         // over local, on one GPU
  nccl,           // over local, each rank on its own GPU
};
inline const char* to_string(Carrier carrier) {
  constexpr const char* kNames[] = {"Local", "LocalOfGpus", "Staged", "Nccl"};
  return kNames[static_cast<int>(carrier)];
}

/// The reason why this machine cannot run `ranks` ranks; empty if it can.
inline std::string why_not(Carrier carrier, int ranks) {
  const bool on_gpu = core::thread_state().device.type == DeviceType::cuda;
  const bool of_gpus = carrier == Carrier::local_of_gpus || carrier == Carrier::nccl;
  const int needed = carrier == Carrier::nccl ? ranks : 2;
  if (of_gpus && !on_gpu) {
    return "the test runs on a CPU";
  }
  if (of_gpus && cuda::device_count() < needed) {
    return "fewer than " + std::to_string(needed) + " GPUs";
  }
  return carrier == Carrier::nccl ? parallel::why_nccl_is_unavailable() : "";
}

/// Like as_ranks(), with the given backend.
inline void as_ranks_of(Carrier carrier, int ranks, const std::function<void(parallel::ProcessGroup&)>& body,
                        std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  if (carrier == Carrier::local) {
    return as_ranks(ranks, body, timeout);
  }
  const Device device = core::thread_state().device;
  std::vector<Device> devices;
  for (int r = 0; r < ranks; ++r) {
    const int gpu = carrier == Carrier::nccl ? r : carrier == Carrier::local_of_gpus ? r % 2 : device.index;
    devices.push_back(device.type == DeviceType::cuda ? Device(DeviceType::cuda, gpu) : Device(DeviceType::cpu, r));
  }
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto shared =
      std::make_shared<parallel::LocalGroup>(std::make_shared<parallel::LocalWorld>(ranks), std::move(members));
  const auto run = [&](int rank) {
    std::unique_ptr<parallel::Backend> backend = std::make_unique<parallel::LocalBackend>(shared, rank);
    if (carrier == Carrier::staged) {
      backend = parallel::staged_backend(std::move(backend));
    } else if (carrier == Carrier::nccl) {
      backend = parallel::nccl_backend(std::move(backend), core::thread_state().device, {.timeout = timeout});
    }
    parallel::ProcessGroup group(std::move(backend), {.timeout = timeout});
    body(group);
  };
  parallel::spawn(ranks, run, {.devices = devices});
}

/// The CommError that `body` must throw on each rank.
inline std::vector<CommError> comm_errors(int ranks, const std::function<void(parallel::ProcessGroup&)>& body,
                                          std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  std::vector<CommError> errors(static_cast<std::size_t>(ranks), CommError("nothing was thrown", {}));
  as_ranks(
      ranks,
      [&](parallel::ProcessGroup& group) {
        try {
          body(group);
        } catch (const CommError& error) {
          errors[static_cast<std::size_t>(group.rank())] = error;
        }
      },
      timeout);
  return errors;
}

}  // namespace tandem::test
