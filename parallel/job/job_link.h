#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/file.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/signals.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

// Internal: a launcher's place in its job: the store server on node 0, and the connection to the launchers of other
// nodes.

namespace tandem::inline v0::parallel {

/// Every verdict about a launcher begins with this text: "the launcher of node 1 was stopped by signal 2 (SIGINT)".
inline constexpr const char* kLauncherOfNode = "the launcher of node ";

/// A message from the store or from another launcher.
struct LinkMessage {
  /// The subject of the message.
  enum class Kind : std::uint8_t { lost_rank, lost_launcher, verdict, generation_verdict };

  Kind kind = Kind::verdict;  // the subject of the message
  std::string text = {};      // the reason; empty for lost_rank
  LostRank lost = {};         // for lost_rank only
  int generation = 0;         // for generation_verdict only
};

/// The link of one attempt to run the job. Every attempt has a new store.
class JobLink {
 public:
  /// Node 0 starts to listen here. `token` is the job's token, and `run_id` its name, which the first attempt has yet
  /// to make up. Throws the errors of StoreServer.
  JobLink(const LaunchOptions& options, const JobToken& token, int attempt, const std::string& run_id);
  ~JobLink();
  JobLink(const JobLink&) = delete;
  JobLink& operator=(const JobLink&) = delete;

  /// Waits until the launchers of all nodes have connected. Returns the signal that interrupted the wait, or 0. Throws
  /// StoreError if a launcher is missing at the deadline, and ConfigError if one was started with different numbers.
  int wait_for_nodes(const SignalCatcher& signals, const std::function<void(const std::string&)>& note);

  /// The store's port.
  std::uint16_t port() const noexcept { return port_; }
  /// The number of this attempt, from 0.
  int attempt() const noexcept { return attempt_; }
  /// The token of this attempt, which clients of the store must prove to have.
  const JobToken& token() const noexcept { return token_; }
  /// The job's name, which is equal on all nodes and in all attempts.
  const std::string& run_id() const noexcept { return run_id_; }
  /// Becomes readable when a message has arrived.
  int descriptor() const noexcept { return event_.get(); }
  /// Adds a message. May be called from any thread.
  void hear(const LinkMessage& message);
  /// Takes all messages that have arrived.
  std::vector<LinkMessage> take();

  /// The ranks that are connected to the store. On node 0.
  std::vector<RankProcess> ranks() const { return server_->ranks(); }
  /// Declares the job over: all ranks and launchers receive the verdict.
  void publish(const std::string& verdict);
  /// Tells the launchers of the other nodes that this launcher ends: "was stopped by signal 15 (SIGTERM)".
  void say_stopped(const std::string& what);
  /// Reports that this node's ranks have succeeded.
  void report_done();
  /// Whether the ranks of all nodes have succeeded.
  bool all_done();

 private:
  bool connect(std::string& why, const std::function<bool()>& goes_on);
  void compare(int node, const std::string& ranks);

  const LaunchOptions& options_;
  JobToken token_;
  int attempt_;
  std::string run_id_;
  std::uint16_t port_ = 0;
  core::Descriptor event_;
  std::mutex mutex_;
  std::vector<LinkMessage> messages_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> store_;  // null for a job on one node
};

}  // namespace tandem::inline v0::parallel
