#include <tandem/parallel/rendezvous/server_state.h>

#include <algorithm>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/host_name.h>
#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kMaxWaits = 1024;    // pending waits of one client
constexpr std::size_t kSmallValue = 4096;  // up to this size a copy is cheaper than a second write

RankProcess process_of(const Hello& hello) { return {hello.rank, hello.pid, shown_key(hello.host)}; }

std::string name_of(const RankProcess& process) { return rank_name(process.rank, process.pid, process.host); }

void reply(const Connection& connection, FrameKind kind, std::uint32_t id, std::string value = {}) {
  connection.channel->send(encode({kind, id, {}, std::move(value)}));
}

void reply_with(const Connection& connection, std::uint32_t id, const MemoryStore::Value& value) {
  if (value->size() <= kSmallValue) {
    reply(connection, FrameKind::value, id, *value);
  } else {
    connection.channel->send(encode_header({FrameKind::value, id, 0, value->size()}), value);
  }
}

}  // namespace

std::string describe(const LostRank& lost) {
  if (lost.status) {
    return fmt::format("{} {}{}", name_of(lost.process), end_text(*lost.status),
                       WIFSIGNALED(*lost.status) ? "" : " in the middle of its job");
  }
  if (lost.sign == LostRank::Sign::closed) {
    return fmt::format("{} is gone: its connection closed without a goodbye", name_of(lost.process));
  }
  return fmt::format("{} has sent no heartbeat for {:.1f} s: it is stopped, or its machine is cut off",
                     name_of(lost.process), static_cast<double>(lost.silence.count()) / 1000);
}

void ServerState::join(const ConnectionPtr& connection, const Hello& hello) {
  check<ConfigError>(
      2 * std::uint64_t{hello.heartbeat_ms} <= static_cast<std::uint64_t>(options_.heartbeat_limit.count()),
      "a heartbeat every {} ms is too seldom for a limit of {} ms: at most half of it", hello.heartbeat_ms,
      options_.heartbeat_limit.count());
  if (hello.rank >= 0) {
    const auto [there, is_new] = ranks_.try_emplace(hello.rank, connection);
    if (!is_new && !there->second->said_goodbye) {
      fail<ConfigError>(
          "{} is connected already: each rank runs once. Was the job started twice, or is an old one still there?",
          name_of(process_of(there->second->hello)));
    }
    there->second = connection;  // an old connection that said goodbye is about to close
  }
  connection->hello = hello;
  if (!options_.on_lost && hello.rank >= 0 && hello.host == core::host_name() &&
      std::int64_t{hello.pid} != ::getpid()) {
    connection->end.emplace(hello.pid);
  }
  clients_.insert(connection);
  reply(*connection, FrameKind::done, 0);
  if (!verdict_.empty()) {
    reply(*connection, FrameKind::verdict, 0, verdict_);
  }
}

bool ServerState::has_left(int rank) const {
  const auto there = ranks_.find(rank);
  return left_.contains(rank) || (there != ranks_.end() && there->second->said_goodbye);
}

void ServerState::handle(const ConnectionPtr& connection, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat: reply(*connection, FrameKind::beat, 0); break;
    case FrameKind::goodbye: connection->said_goodbye = true; break;
    case FrameKind::cancel: forget_wait(connection, frame.id); break;
    case FrameKind::verdict: publish(frame.value); break;
    default:
      check<IoError>(frame.kind > FrameKind::hello && frame.kind < FrameKind::beat,
                     "rendezvous: a client sends no frame of kind {} now", static_cast<int>(frame.kind));
      try {
        answer(connection, frame);
      } catch (const StoreError& error) {
        reply(*connection, FrameKind::refused, frame.id, error.what());
      }
  }
}

void ServerState::answer(const ConnectionPtr& connection, const Frame& frame) {
  const auto yes_or_no = [&](bool yes) { reply(*connection, yes ? FrameKind::done : FrameKind::no, frame.id); };
  switch (frame.kind) {
    case FrameKind::set:
      table_.set(frame.key, frame.value);
      yes_or_no(true);
      wake(frame.key);
      break;
    case FrameKind::add: {
      const std::int64_t sum = table_.add(frame.key, decode_number(frame.value));
      reply(*connection, FrameKind::value, frame.id, encode_number(sum));
      wake(frame.key);
      break;
    }
    case FrameKind::erase: yes_or_no(table_.erase(frame.key)); break;
    case FrameKind::try_get:
      if (const MemoryStore::Value value = table_.find(frame.key)) {
        reply_with(*connection, frame.id, value);
      } else {
        yes_or_no(false);
      }
      break;
    default: wait(connection, frame);  // only get is left
  }
}

void ServerState::wait(const ConnectionPtr& connection, const Frame& frame) {
  if (const MemoryStore::Value value = table_.find(frame.key)) {
    reply_with(*connection, frame.id, value);
    return;
  }
  if (connection->waits.size() >= kMaxWaits || connection->waits.contains(frame.id)) {
    fail_store(StoreError::Kind::refused, "store: more than {} waits of one client at a time", kMaxWaits);
  }
  connection->waits.emplace(frame.id, frame.key);
  waiters_[frame.key].push_back({connection, frame.id});
}

void ServerState::forget_wait(const ConnectionPtr& connection, std::uint32_t id) {
  const auto entry = connection->waits.find(id);
  if (entry == connection->waits.end()) {
    return;  // already answered
  }
  const auto waiters = waiters_.find(entry->second);
  std::erase_if(waiters->second, [&](const Waiter& w) { return w.connection == connection && w.id == id; });
  if (waiters->second.empty()) {
    waiters_.erase(waiters);
  }
  connection->waits.erase(entry);
}

void ServerState::wake(const std::string& key) {
  const auto entry = waiters_.find(key);
  if (entry == waiters_.end()) {
    return;
  }
  const std::vector<Waiter> waiters = std::move(entry->second);
  waiters_.erase(entry);
  const MemoryStore::Value value = table_.find(key);
  for (const Waiter& waiter : waiters) {
    waiter.connection->waits.erase(waiter.id);
    reply_with(*waiter.connection, waiter.id, value);
  }
}

void ServerState::leave(const ConnectionPtr& connection) {
  while (!connection->waits.empty()) {
    forget_wait(connection, connection->waits.begin()->first);
  }
  clients_.erase(connection);
  if (connection->hello.rank >= 0) {
    if (const auto there = ranks_.find(connection->hello.rank); there != ranks_.end() && there->second == connection) {
      ranks_.erase(there);
    }
    if (connection->said_goodbye) {
      left_.insert(connection->hello.rank);
    } else if (!connection->lost) {
      lose(*connection, LostRank::Sign::closed, Connection::Clock::now());
    }
  }
}

void ServerState::look_for_silent(Connection::Clock::time_point now) {
  for (const ConnectionPtr& client : clients_) {
    if (client->lost || now - client->heard <= options_.heartbeat_limit) {
      continue;
    }
    if (client->hello.rank >= 0) {
      lose(*client, LostRank::Sign::silent, now);  // the connection stays open: a rank that wakes up hears the verdict
    } else {
      client->channel->close();
    }
  }
}

void ServerState::forgive(Connection::Clock::time_point now) {
  for (const ConnectionPtr& client : clients_) {
    client->heard = now;
  }
}

void ServerState::lose(Connection& connection, LostRank::Sign sign, Connection::Clock::time_point now) {
  connection.lost = true;
  const LostRank lost{process_of(connection.hello), sign,
                      std::chrono::duration_cast<std::chrono::milliseconds>(now - connection.heard),
                      connection.end ? connection.end->status() : std::nullopt};
  if (options_.on_lost) {
    options_.on_lost(lost);
  } else {
    publish(describe(lost));
  }
}

void ServerState::publish(const std::string& text) {
  if (!verdict_.empty() || text.empty()) {
    return;
  }
  verdict_ = text.substr(0, kMaxFrameText);
  for (const ConnectionPtr& client : clients_) {
    reply(*client, FrameKind::verdict, 0, verdict_);
  }
  if (options_.on_verdict) {
    options_.on_verdict(verdict_);
  }
}

std::vector<RankProcess> ServerState::ranks() const {
  std::vector<RankProcess> processes;
  for (const auto& [rank, connection] : ranks_) {
    processes.push_back(process_of(connection->hello));
  }
  return processes;
}

void ServerState::close_all() {
  for (const ConnectionPtr& client : clients_) {
    client->lost = true;  // this side closes the connection, so the rank is not lost
    client->channel->close();
  }
}

}  // namespace tandem::inline v0::parallel
