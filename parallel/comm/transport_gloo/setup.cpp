#include <tandem/parallel/comm/transport_gloo/setup.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/comm/transport_gloo/mesh.h>
#include <tandem/parallel/comm/transport_gloo/signals.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/meet.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

// Both sides of a connection must have the same version.
constexpr std::uint64_t kWireVersion = 3;
// Maximum length of a connection failure's reason in bytes, so that the reasons of all ranks fit into one value of the
// store.
constexpr std::size_t kLongestReason = 400;
// Begins the reason of a failure that would repeat itself in all further attempts.
constexpr char kHopeless = '!';

using Proof = std::array<std::uint8_t, JobToken::kBytes>;

// Only ranks of this attempt know `secret`. The proof differs between the two directions of a connection.
Proof prove(const std::string& secret, int from, int to) {
  return JobToken::from_hex(secret).derived(fmt::format("tandem gloo {} to {}", from, to)).bytes();
}

// While it exists, tells `tell` a line once a second. Gloo's calls cannot be interrupted to do so.
class Teller {
 public:
  Teller(const std::function<void(const std::string&)>& tell, const std::string& line) {
    if (tell) {
      thread_ = core::start_thread<std::jthread>("news of the set-up", [&tell, line](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); })) {
          tell(line);
        }
      });
    }
  }

 private:
  std::jthread thread_;
};

class Setup {
 public:
  Setup(const GlooOptions& options, std::shared_ptr<gloo::transport::Device> device, Clock::time_point deadline,
        const GroupNames& names, bool is_first)
      : options_(options), device_(std::move(device)), deadline_(deadline), names_(names), is_first_(is_first) {}

  std::unique_ptr<Wire> run() {
    try {
      const auto kind = is_first_ ? Meeting::Kind::once : Meeting::Kind::passing;
      std::string secret =
          meet_others({.prefix = options_.prefix, .value = own_secret(), .kind = kind, .deadline = deadline_},
                      "not come in time. Start as many processes as the job has ranks, with the same store")
              .front();
      std::string failure;
      for (int attempt = 0;; ++attempt) {
        std::unique_ptr<Wire> wire;
        const Teller teller(options_.on_waiting, fmt::format("rank {} of {} connects with the other ranks{}",
                                                             own_name(), options_.size, failure));
        const std::string reason = agree(attempt, connect(attempt, secret, wire), secret);
        if (reason.empty()) {
          return wire;
        }
        if (reason.front() == kHopeless) {
          fail_here("cannot connect: {}", reason.substr(1));
        }
        if (Clock::now() >= deadline_) {
          fail_here("could not connect in time, after {} attempts: {}", attempt + 1, reason);
        }
        failure = fmt::format("; attempt {} failed: {}", attempt + 1, reason);
      }
    } catch (const StoreError& error) {
      if (const auto cause = options_.alarm && error.kind() != StoreError::Kind::timeout
                                 ? options_.alarm->wait_for(Alarm::kExplanationTime)
                                 : std::nullopt) {
        throw CommError(*cause);
      }
      fail_here("the store: {}", error.what());
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    throw CommError(failure_text(fmt::format(format, std::forward<Args>(args)...)),
                    {.fault = CommFault::init, .rank = own_name()});
  }

  int own_name() const { return names_.rank(options_.rank); }

  std::string failure_text(std::string_view text) const {
    const std::string members = names_.members();
    return fmt::format("process group '{}': rank {} of {}: {}", options_.prefix, own_name(),
                       members.empty() ? std::to_string(options_.size) : members, text);
  }

  std::string key(const char* name, int number) const { return fmt::format("{}/{}/{}", options_.prefix, name, number); }

  // Only rank 0's secret is used.
  std::string own_secret() const { return options_.rank == 0 ? JobToken::generate().hex() : std::string(); }

  // Returns all ranks' values. `late` ends the error message about missing ranks, after "have".
  std::vector<std::string> meet_others(Meeting meeting, std::string_view late) const {
    meeting.rank = options_.rank;
    meeting.size = options_.size;
    meeting.goes_on = [this] { return !options_.alarm || !options_.alarm->cause(); };
    Met met = meet(*options_.store, meeting);
    if (!meeting.goes_on()) {
      throw CommError(*options_.alarm->cause());
    }
    if (met.is_taken) {
      fail_here(
          "another process has this rank already. Give each process a RANK of its own, and each start of the job "
          "a fresh store or prefix");
    }
    if (!met.missing.empty()) {
      fail_here("rank{} {} {} {}", met.missing.size() == 1 ? "" : "s", fmt::join(names_.ranks(met.missing), ", "),
                met.missing.size() == 1 ? "has" : "have", late);
    }
    return std::move(met.values);
  }

  // Returns an empty string, or the reason for the failure.
  std::string connect(int attempt, const std::string& secret, std::unique_ptr<Wire>& wire) {
    const auto now = Clock::now();
    const auto limit =
        std::max(now + std::chrono::milliseconds(1), std::min(deadline_, now + options_.greeting_timeout));
    const std::string prefix = key("attempt", attempt) + "/";
    try {
      // Gloo listens for each peer, and opens a connection before it closes that socket, on two threads. It does not
      // report a connection that it cannot accept.
      core::require_descriptors(options_.size + 1);
      const auto mesh = std::make_shared<GlooMesh>(device_, options_.rank, options_.size);
      {
        const auto ends =
            options_.alarm ? options_.alarm->listen([&](const CommError&) { mesh->close(); }) : Alarm::Subscription();
        mesh->connect(*options_.store, prefix, std::chrono::ceil<std::chrono::milliseconds>(limit - now));
      }
      wire = std::make_unique<Wire>(mesh, options_.alarm);
      return greet(*wire, secret, limit);
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      return error.what();
    } catch (const std::exception& error) {  // from Gloo, or from the system
      if (const int shortage = core::shortage_in(error); shortage != 0) {
        GlooMesh::refuse(*options_.store, prefix, options_.rank, options_.greeting_timeout);
        if (options_.alarm) {  // ends the others' attempts to connect
          options_.alarm->ring(
              CommError(failure_text(fmt::format("cannot connect: {}", core::system_message(shortage))),
                        {.fault = CommFault::init, .rank = own_name()}));
          throw CommError(*options_.alarm->cause());
        }
        return fmt::format("{}rank {}: {}", kHopeless, own_name(), core::system_message(shortage));
      }
      return error.what();
    }
  }

  // Detects a stranger who connected first and took the peer's place.
  std::string greet(Wire& wire, const std::string& secret, Clock::time_point limit) const {
    for (const int peer : wire.peers()) {
      const Proof proof = prove(secret, options_.rank, peer);
      wire.try_post(peer, {.kind = Mail::Kind::greeting, .number = kWireVersion}, proof.data(), proof.size(), limit);
    }
    for (const int peer : wire.peers()) {
      const Mail* mail = wire.mail_until(peer, limit);
      const Proof proof = prove(secret, peer, options_.rank);
      if (mail == nullptr || mail->kind != Mail::Kind::greeting || mail->number != kWireVersion ||
          mail->payload != proof.size() || std::memcmp(payload_of(*mail), proof.data(), proof.size()) != 0) {
        return fmt::format("what connected in the place of rank {} is not that rank", names_.rank(peer));
      }
      wire.take(peer);
    }
    return {};
  }

  // Either all ranks go on, or all try again with another secret. Returns the reason of the lowest rank that failed, or
  // of the lowest one whose failure is hopeless.
  std::string agree(int attempt, const std::string& reason, std::string& secret) {
    // The connections exist now, so the set-up deadline no longer applies.
    const auto deadline = std::max(Clock::now(), deadline_) + 2 * options_.greeting_timeout;
    const std::vector<std::string> results = meet_others({.prefix = key("attempt", attempt),
                                                          .value = own_secret() + reason.substr(0, kLongestReason),
                                                          .kind = Meeting::Kind::passing,
                                                          .deadline = deadline},
                                                         "not said in time whether it is connected");
    // Erases the addresses: no rank is still connecting.
    options_.store->post_erase(fmt::format("{}/{}", key("attempt", attempt), options_.rank));
    std::string first = results.front().substr(secret.size());
    for (std::size_t r = 1; r < results.size() && !first.starts_with(kHopeless); ++r) {
      first = first.empty() || results[r].starts_with(kHopeless) ? results[r] : first;
    }
    secret = results.front().substr(0, secret.size());
    return first;
  }

  const GlooOptions& options_;
  std::shared_ptr<gloo::transport::Device> device_;
  Clock::time_point deadline_;
  const GroupNames& names_;
  bool is_first_;
};

}  // namespace

std::unique_ptr<Wire> connect_wire(const GlooOptions& options, const std::shared_ptr<gloo::transport::Device>& device,
                                   Clock::time_point deadline, const GroupNames& names, bool is_first) {
  const SigpipeBlock no_signals;
  return Setup(options, device, deadline, names, is_first).run();
}

}  // namespace tandem::inline v0::parallel
