#include <tandem/parallel/comm/hosts/hosts_backend.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>
#include <tandem/parallel/comm/transport_gloo/signals.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;
using Kind = CollectiveKind;

namespace {

// The longest wait of a leaving rank for the others. Their data may still be in the network, and would be lost if the
// connection closed with unread data.
constexpr std::chrono::milliseconds kLeaveTime(500);
// The longest wait for messages that have not been received.
constexpr std::chrono::seconds kFlushTime(5);

}  // namespace

bool has_gloo() noexcept { return true; }

std::unique_ptr<Backend> gloo_backend(GlooOptions options) {
  check<ConfigError>(options.store != nullptr, "gloo_backend: there is no store");
  check<ConfigError>(options.rank >= 0 && options.rank < options.size,
                     "gloo_backend: rank {} of {} ranks; expected one from 0 to {}", options.rank, options.size,
                     options.size - 1);
  for (const auto timeout : {options.setup_timeout, options.greeting_timeout}) {
    check<ConfigError>(timeout.count() > 0 && timeout < kMaxStoreTimeout / 4,
                       "gloo_backend: a timeout of {} ms; expected more than 0, and no more than some hours",
                       timeout.count());
  }
  const auto now = Clock::now();
  const CallTime time{.start = now, .deadline = now + options.setup_timeout};
  options.address = listen_address(options);
  const auto device = listen_at(options.address);
  auto names = std::make_shared<GroupNames>(options.numbers);
  return std::make_unique<HostsBackend>(std::move(options), device, time, std::move(names), true);
}

std::unique_ptr<Backend> HostsBackend::split(std::span<const int> members, const CallTime& time) {
  const std::uint64_t number = splits_++;
  const auto place = std::find(members.begin(), members.end(), rank());
  if (place == members.end()) {
    return nullptr;
  }
  GlooOptions options = options_;
  options.prefix = fmt::format("{}/group{}.{}", options_.prefix, number, members.front());
  options.rank = static_cast<int>(place - members.begin());
  options.size = static_cast<int>(members.size());
  options.on_waiting = {};  // its owner waits for the first group only
  return std::make_unique<HostsBackend>(std::move(options), device_, time,
                                        std::make_shared<GroupNames>(names()->ranks(members)), false);
}

HostsBackend::HostsBackend(GlooOptions options, std::shared_ptr<gloo::transport::Device> device, const CallTime& time,
                           std::shared_ptr<GroupNames> group_names, bool is_first)
    : Backend(std::move(group_names)),
      options_(std::move(options)),
      device_(std::move(device)),
      wire_(connect_wire(options_, device_, time.deadline, *names(), is_first)),
      messages_(*wire_),
      ranks_(static_cast<std::size_t>(size())) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  CallTime among_us = time;
  among_us.names = names().get();
  share_memory(among_us);
}

HostsBackend::~HostsBackend() {
  // If the job is already over for a reason that some ranks have not heard yet, this rank must report that reason and
  // not its own departure.
  if (const auto cause = options_.alarm ? options_.alarm->cause() : std::nullopt) {
    wire_->abort(*cause);
    return;
  }
  messages_.flush(Clock::now() + kFlushTime);
  const auto deadline = Clock::now() + kLeaveTime;
  for (const int peer : wire_->peers()) {
    wire_->try_post(peer, {.kind = Mail::Kind::goodbye}, nullptr, 0, deadline);
  }
  for (const int peer : wire_->peers()) {
    const Mail* mail = wire_->mail_until(peer, deadline);
    while (mail != nullptr && mail->kind != Mail::Kind::goodbye) {
      wire_->take(peer);
      mail = wire_->mail_until(peer, deadline);
    }
  }
}

std::string HostsBackend::refusal(const Collective& call) const {
  return call.device == DeviceType::cpu ? std::string()
                                        : "Gloo exchanges tensors on the CPU only; move them there with .to(\"cpu\")";
}

void HostsBackend::exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) {
  const CallInProgress now{mine, time};
  wire_->check();
  messages_.note_call(mine);
  if (shares_memory()) {
    return exchange_in_memory(all, now);
  }
  const SigpipeBlock for_all_packets;
  post_all(Mail::Kind::call, nullptr, 0, now);
  all[static_cast<std::size_t>(rank())] = mine;
  for (const int peer : wire_->peers()) {
    all[static_cast<std::size_t>(peer)] = collective_mail(peer, now).call;
    wire_->take(peer);
  }
  note_calls(all);
}

void HostsBackend::note_calls(std::span<const Collective> all) {
  for (const int peer : wire_->peers()) {
    wire_->note_call(peer, all[static_cast<std::size_t>(peer)]);
  }
}

void HostsBackend::run(const Collective& call, const Buffers& buffers, const CallTime& time) {
  const CallInProgress now{call, time};
  wire_->check();
  if (call.kind != Kind::send && call.kind != Kind::recv) {
    ++collectives_;
    messages_.note_call(call);
  }
  if (shares_memory() && SharedGroup::takes(call.kind)) {
    return run_in_memory(buffers, now);
  }
  const SigpipeBlock for_all_packets;
  switch (call.kind) {
    case Kind::send: return messages_.send(buffers, now);
    case Kind::recv: return messages_.receive(buffers, now);
    case Kind::broadcast:
      if (call.planned) {  // the root would not hear of ranks in another call
        tell_all(nullptr, 0, now, [](int, const Mail&) {});
      }
      return broadcast(buffers, now);
    case Kind::all_gather:
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all: return move_parts(buffers, now);
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter: return reduce(buffers, now);
    case Kind::barrier:  // exchange() has waited for all ranks
    case Kind::new_group: return;
  }
}

void HostsBackend::post(Mail::Kind kind, int peer, const void* payload, std::size_t bytes, const CallInProgress& now) {
  wire_->post(peer, {.kind = kind, .taken = messages_.taken_from(peer), .call = now.call}, payload, bytes, now);
}

void HostsBackend::post_all(Mail::Kind kind, const void* payload, std::size_t bytes, const CallInProgress& now) {
  for (const int peer : wire_->peers()) {
    post(kind, peer, payload, bytes, now);
  }
}

void HostsBackend::tell_all(const void* payload, std::size_t bytes, const CallInProgress& now,
                            core::FunctionRef<void(int, const Mail&)> hear) {
  post_all(Mail::Kind::work, payload, bytes, now);
  for (const int peer : wire_->peers()) {  // fail_different() reads all mails of the call, so none is taken yet
    if (work_mail(peer, now).payload != bytes) {
      fail_different(now);
    }
  }
  for (const int peer : wire_->peers()) {
    hear(peer, wire_->mail(peer, now));
    wire_->take(peer);
  }
}

// Returns that rank's mail for its next collective.
const Mail& HostsBackend::collective_mail(int peer, const CallInProgress& now) {
  for (;;) {
    const Mail& mail = wire_->mail(peer, now);
    if (mail.kind == Mail::Kind::call || mail.kind == Mail::Kind::work) {
      messages_.note_taken(peer, mail.taken);
      return mail;
    }
    messages_.put_aside(peer, mail, now);
  }
}

// Only by mistake can a call that was compared meet a planned call, which was not.
const Mail& HostsBackend::work_mail(int peer, const CallInProgress& now) {
  const Mail& mail = collective_mail(peer, now);
  if (mail.kind != Mail::Kind::work || mail.call != now.call) {
    fail_different(now);
  }
  return mail;
}

void HostsBackend::fail_different(const CallInProgress& now) {
  std::vector<Collective> calls(static_cast<std::size_t>(size()), now.call);
  for (const int peer : wire_->peers()) {
    calls[static_cast<std::size_t>(peer)] = collective_mail(peer, now).call;
  }
  wire_->fail(mismatch_error(calls, now.call, now.time));
}

// The slots for this call's data, equal on all ranks that make this call now. A rank in another call waits at other
// slots, so data that is too long for its memory never arrives there.
std::uint64_t HostsBackend::data_slots(const CallInProgress& now) const {
  const std::string text = fmt::format("{} {}", collectives_, to_string(now.call));
  return std::hash<std::string>()(text) << 1 | kCallSlots;
}

}  // namespace tandem::inline v0::parallel
