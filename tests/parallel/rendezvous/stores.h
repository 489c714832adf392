#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/rendezvous/file_store.h>
#include <tandem/parallel/rendezvous/memory_store.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

#include "support/temp_dir.h"

namespace tandem::test {

using namespace std::chrono_literals;
using parallel::Store;
using parallel::StoreError;

/// Options of a test client of `server`, which either runs already or never will.
inline parallel::TcpStoreOptions client_of(const parallel::StoreServer& server,
                                           std::optional<parallel::JobToken> token = std::nullopt, int rank = -1) {
  return {
      .host = server.host(), .port = server.port(), .token = std::move(token), .rank = rank, .connect_timeout = 20s};
}

/// The shared part of a job's stores, which creates each rank's store.
struct Job {
  virtual ~Job() = default;
  virtual std::shared_ptr<Store> join(int rank) = 0;
};

struct MemoryJob : Job {
  std::shared_ptr<Store> store = std::make_shared<parallel::MemoryStore>();
  std::shared_ptr<Store> join(int /*rank*/) override { return store; }
};

struct FileJob : Job {
  TempDir folder;
  std::shared_ptr<Store> join(int rank) override {
    return std::make_shared<parallel::FileStore>(folder.file("store"), rank);
  }
};

struct TcpJob : Job {
  parallel::JobToken token = parallel::JobToken::generate();
  parallel::StoreServer server{{.token = token}};
  std::shared_ptr<Store> join(int rank) override {
    return std::make_shared<parallel::TcpStore>(client_of(server, token, rank));
  }
};

struct JobKind {
  const char* name;
  std::unique_ptr<Job> (*make)();
};

inline void PrintTo(const JobKind& kind, std::ostream* out) { *out << kind.name; }

inline const JobKind kJobs[] = {
    {"Memory", [] { return std::unique_ptr<Job>(new MemoryJob); }},
    {"File", [] { return std::unique_ptr<Job>(new FileJob); }},
    {"Tcp", [] { return std::unique_ptr<Job>(new TcpJob); }},
};

/// Tests that hold for all kinds of store.
class EveryStore : public testing::TestWithParam<JobKind> {
 protected:
  std::unique_ptr<Job> job_ = GetParam().make();
};

/// The kind of StoreError that `body` throws.
template <class Body>
StoreError::Kind kind_of(Body&& body) {
  try {
    body();
  } catch (const StoreError& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// The seconds that `body` takes.
template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Polls until `there` is true or 30 s have passed.
template <class Condition>
bool eventually(Condition&& there) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!there()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

}  // namespace tandem::test
