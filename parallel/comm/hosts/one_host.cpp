#include <cstring>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/hosts/hosts_backend.h>

// All ranks are on one host: comparisons and all-reduces use shared memory, and the wire shows whether the other ranks
// are still alive.

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kGlance(1);  // time to find a mail that has arrived

}  // namespace

// Every rank tells the others where its part is, and then whether it could open all other parts.
void HostsBackend::share_memory(const CallTime& time) {
  if (!options_.shared_memory || size() == 1) {
    return;
  }
  Collective call;
  call.kind = CollectiveKind::new_group;
  const CallInProgress now{call, time};
  SharedMemory::Address own;
  try {
    shared_ = std::make_unique<SharedGroup>(rank(), size(), options_.address);
    own = shared_->memory().address();
  } catch (const IoError&) {  // the other ranks must learn of the failure
  }
  std::uint8_t agreed = shared_ != nullptr ? 1 : 0;
  tell_all(&own, sizeof own, now, [&](int peer, const Mail& mail) {
    SharedMemory::Address address;
    std::memcpy(&address, payload_of(mail), sizeof address);
    agreed = agreed != 0 && shared_->memory().open(peer, address) ? 1 : 0;
  });
  const std::uint8_t opened = agreed;
  tell_all(&opened, sizeof opened, now,
           [&](int, const Mail& mail) { agreed &= *static_cast<const std::uint8_t*>(payload_of(mail)); });
  agreed == 0 ? shared_.reset() : shared_->memory().seal();
}

void HostsBackend::exchange_in_memory(std::span<Collective> all, const CallInProgress& now) {
  shared_->exchange(now.call, all, now.time, [&](bool is_long) { look_after(now, is_long); });
  note_calls(all);
}

void HostsBackend::reduce_in_memory(const Buffers& buffers, const CallInProgress& now) {
  const auto compare = [&](std::span<const Collective> all) {
    note_calls(all);
    for (const Collective& call : all) {
      if (call != now.call) {
        wire_->fail(mismatch_error(calls_side_by_side(all), odd_one_out(all), now.call, now.time));
      }
    }
  };
  shared_->all_reduce(now.call, buffers, now.time, [&](bool is_long) { look_after(now, is_long); }, compare);
}

// Performs the checks that a wait for mails includes.
void HostsBackend::look_after(const CallInProgress& now, bool is_long) {
  // Decide once: a peer must not be blamed because the deadline passed while another was being checked.
  const bool late = Clock::now() >= now.time.deadline;
  for (const int peer : wire_->peers()) {
    while (!shared_->memory().has_come(peer)) {
      const Wire::Waited waited = wire_->look(peer, Clock::now() + kGlance);
      if (shared_->memory().has_come(peer)) {
        break;  // its mails and its departure may belong to a later call
      }
      if (waited == Wire::Waited::broken) {
        wire_->fail_lost(peer, now);
      }
      if (waited == Wire::Waited::late && late) {
        wire_->fail_late(peer, now);
      }
      if (waited == Wire::Waited::late) {
        if (is_long) {  // the peer may wait for a mail of this rank
          wire_->try_post(peer, {.kind = Mail::Kind::waiting, .call = now.call}, nullptr, 0, Clock::now());
        }
        break;
      }
      const Mail& mail = wire_->mail(peer, now);
      if (mail.kind == Mail::Kind::work || mail.kind == Mail::Kind::call) {
        post_all(Mail::Kind::work, nullptr, 0, now);  // the peers have received no mail of this call
        fail_different(now);
      }
      messages_.put_aside(peer, mail, now);
    }
  }
}

}  // namespace tandem::inline v0::parallel
