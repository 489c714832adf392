#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/parallel/rendezvous/channel.h>
#include <tandem/parallel/rendezvous/frames.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/store_table.h>

// Internal: what a StoreServer does for clients that it knows. All of it happens on the server's thread.

namespace tandem::inline v0::parallel {

/// One connection, from accept() on.
struct Connection {
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<Channel> channel;
  Clock::time_point since;  // it was accepted
  Clock::time_point heard;  // anything came
  Hello hello;
  bool said_goodbye = false;
  bool lost = false;                           // and said so
  std::map<std::uint32_t, std::string> waits;  // for which keys, by the request's id
};
using ConnectionPtr = std::shared_ptr<Connection>;

/// Clients, their keys and values, and whom they wait for.
class ServerState {
 public:
  explicit ServerState(const StoreServerOptions& options) : options_(options) {}

  /// The connection's first frame. Throws Error with the reason when it may not join.
  void join(const ConnectionPtr& connection, const Frame& frame);
  /// Whether that is the hello of a rank that was here before. Throws as join().
  bool has_left(const Frame& hello) const;
  /// A later one. Throws IoError for what no client sends.
  void handle(const ConnectionPtr& connection, Frame frame);
  /// The connection is closed. Once for each that joined.
  void leave(const ConnectionPtr& connection);
  /// Looks for ranks that have been silent for too long.
  void look_for_silent(Connection::Clock::time_point now);
  /// All were heard now: after a time in which this thread did not run, nothing can be said of them.
  void forgive(Connection::Clock::time_point now);

  void publish(const std::string& text);
  const std::string& verdict() const noexcept { return verdict_; }
  std::vector<RankProcess> ranks() const;
  void close_all();

 private:
  void answer(const ConnectionPtr& connection, Frame& frame);
  void wait(const ConnectionPtr& connection, const Frame& frame);
  void forget_wait(const ConnectionPtr& connection, std::uint32_t id);
  void wake(const std::string& key);
  void lose(Connection& connection, LostRank::Sign sign, Connection::Clock::time_point now);

  struct Waiter {
    ConnectionPtr connection;
    std::uint32_t id;
    bool wants_value;
  };

  const StoreServerOptions& options_;
  StoreTable table_;
  std::unordered_map<std::string, std::vector<Waiter>> waiters_;
  std::set<ConnectionPtr> clients_;
  std::map<int, ConnectionPtr> ranks_;
  std::set<int> left_;  // with a goodbye, some time
  std::string verdict_;
};

}  // namespace tandem::inline v0::parallel
