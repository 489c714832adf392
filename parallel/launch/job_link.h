#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/parallel/launch/launch.h>
#include <tandem/parallel/launch/signals.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

// Internal: a launcher's place in its job: the store's server on node 0, and its line to the other nodes' launchers.

namespace tandem::inline v0::parallel {

/// What is said of launchers begins so: "the launcher of node 1 was stopped by signal 2 (SIGINT)".
inline constexpr const char* kLauncherOfNode = "the launcher of node ";

/// What a launcher hears.
struct LinkMessage {
  /// Of what.
  enum class Kind : std::uint8_t { lost_rank, lost_launcher, verdict, lost_server };

  Kind kind = Kind::verdict;  // of what
  std::string text = {};      // of all but lost_rank
  LostRank lost = {};         // lost_rank: which, and how
};

/// One per attempt to run the job: its store is a new one.
class JobLink {
 public:
  /// Node 0 listens from here on. `token`: the job's. Throws as StoreServer does.
  JobLink(const LaunchOptions& options, const JobToken& token, int attempt);
  ~JobLink();
  JobLink(const JobLink&) = delete;
  JobLink& operator=(const JobLink&) = delete;

  /// Waits until the launchers of all nodes are there. Returns the signal that ended that, 0: none did. Throws
  /// StoreError where they do not come in time, ConfigError where they want something else than this one.
  int wait_for_nodes(const SignalCatcher& signals, const std::function<void(const std::string&)>& note);

  /// Where the store is.
  std::uint16_t port() const noexcept { return port_; }
  /// This attempt's: what clients of the store show.
  const JobToken& token() const noexcept { return token_; }
  /// The job's name, the same on all nodes.
  const std::string& run_id() const noexcept { return run_id_; }
  /// Can be read when a message is there.
  int descriptor() const noexcept { return event_; }
  /// Takes them.
  std::vector<LinkMessage> take();

  /// The job is over: all ranks and launchers are told.
  void publish(const std::string& verdict);
  /// The launchers of other nodes are told that this one ends.
  void say_stopped(int signal);
  /// This node's ranks have ended well.
  void report_done();
  /// Whether those of all nodes have.
  bool all_done();

 private:
  void hear(LinkMessage::Kind kind, const std::string& text);
  void hear(const LinkMessage& message);
  bool connect(std::string& why);
  void join_others();

  const LaunchOptions& options_;
  JobToken token_;
  int attempt_;
  std::string run_id_;
  std::uint16_t port_ = 0;
  int event_ = -1;
  std::mutex mutex_;
  std::vector<LinkMessage> messages_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> store_;  // where there are several nodes
};

}  // namespace tandem::inline v0::parallel
