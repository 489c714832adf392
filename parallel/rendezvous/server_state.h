#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/parallel/rendezvous/channel.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/memory_store.h>
#include <tandem/parallel/rendezvous/process_end.h>
#include <tandem/parallel/rendezvous/store_server.h>

// Internal: the StoreServer's work for authenticated clients. All of it runs on the server's thread.

namespace tandem::inline v0::parallel {

/// One connection, from accept() on.
struct Connection {
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<Channel> channel;
  Clock::time_point since;  // time of accept()
  Clock::time_point heard;  // time of the last frame
  Hello hello;
  bool said_goodbye = false;
  bool lost = false;                           // already reported as lost
  std::optional<ProcessEnd> end;               // of the client's process, if this server is to say how it ended
  std::map<std::uint32_t, std::string> waits;  // the keys waited for, by the request's id
};
using ConnectionPtr = std::shared_ptr<Connection>;

/// The clients, their keys and values, and their waits.
class ServerState {
 public:
  explicit ServerState(const StoreServerOptions& options) : options_(options) {}

  /// Admits a client that introduced itself. Throws ConfigError with the reason if the client may not join.
  void join(const ConnectionPtr& connection, const Hello& hello);
  /// Whether this rank has said goodbye before.
  bool has_left(int rank) const;
  /// Handles a later frame. Throws IoError for a frame that no client sends.
  void handle(const ConnectionPtr& connection, const Frame& frame);
  /// The connection has closed. Called once for each connection that joined.
  void leave(const ConnectionPtr& connection);
  /// Finds ranks that have been silent for too long.
  void look_for_silent(Connection::Clock::time_point now);
  /// Counts all clients as heard now. After a time in which this thread did not run, their silence proves nothing.
  void forgive(Connection::Clock::time_point now);

  void publish(const std::string& text);
  const std::string& verdict() const noexcept { return verdict_; }
  std::vector<RankProcess> ranks() const;
  void close_all();

 private:
  void answer(const ConnectionPtr& connection, const Frame& frame);
  void wait(const ConnectionPtr& connection, const Frame& frame);
  void forget_wait(const ConnectionPtr& connection, std::uint32_t id);
  void wake(const std::string& key);
  void lose(Connection& connection, LostRank::Sign sign, Connection::Clock::time_point now);

  struct Waiter {
    ConnectionPtr connection;
    std::uint32_t id;
  };

  const StoreServerOptions& options_;
  MemoryStore table_;
  std::unordered_map<std::string, std::vector<Waiter>> waiters_;
  std::set<ConnectionPtr> clients_;
  std::map<int, ConnectionPtr> ranks_;
  std::set<int> left_;  // ranks that have said goodbye
  std::string verdict_;
};

}  // namespace tandem::inline v0::parallel
