#include <tandem/parallel/comm/gloo/backend_over_gloo.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/gloo/setup.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;
using Kind = CollectiveKind;

namespace {

// A rank that is done waits so long until the others are: their data may still be on its way in the network, and is
// lost when the connection is closed with something unread.
constexpr std::chrono::milliseconds kLeaveTime(500);
// The same for messages that have not been received.
constexpr std::chrono::seconds kFlushTime(5);

// The bits of two hashes, well mixed (splitmix64).
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash += value + 0x9e3779b97f4a7c15U;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

}  // namespace

GlooBackend::GlooBackend(GlooOptions options, std::shared_ptr<gloo::transport::Device> device,
                         std::unique_ptr<GlooWire> wire)
    : options_(std::move(options)), device_(std::move(device)), wire_(std::move(wire)), messages_(*wire_) {
  from_.resize(static_cast<std::size_t>(size()));
}

// When the job is over, for a reason that some may not have heard of yet, leaving it is not that reason.
GlooBackend::~GlooBackend() {
  if (const auto cause = options_.alarm ? options_.alarm->cause() : std::nullopt) {
    wire_->abort(*cause);
  } else {
    leave();
  }
}

void GlooBackend::leave() noexcept {
  const SigpipeBlock no_signals;
  messages_.flush(Clock::now() + kFlushTime);
  const auto deadline = Clock::now() + kLeaveTime;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      wire_->try_post(peer, {.kind = GlooMail::Kind::goodbye}, nullptr, 0, deadline);
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    const GlooMail* mail = peer == rank() ? nullptr : wire_->mail_until(peer, deadline);
    while (mail != nullptr && mail->kind != GlooMail::Kind::goodbye) {
      wire_->take(peer);
      mail = wire_->mail_until(peer, deadline);
    }
  }
}

std::string GlooBackend::refusal(const Collective& call) const {
  return call.device == DeviceType::cpu ? std::string()
                                        : "Gloo exchanges tensors on the CPU only; move them there with .to(\"cpu\")";
}

void GlooBackend::post(GlooMail::Kind kind, int peer, const void* payload, std::size_t bytes, const GlooCall& now) {
  wire_->post(peer, {.kind = kind, .taken = messages_.taken_from(peer), .call = now.call}, payload, bytes, now);
}

// A mail that is not of a collective.
void GlooBackend::keep_or_leave(int peer, const GlooMail& mail, const GlooCall& now) {
  messages_.note_taken(peer, mail.taken);
  if (mail.kind == GlooMail::Kind::goodbye) {
    wire_->fail_left(peer, now);
  }
  if (mail.kind == GlooMail::Kind::message) {
    messages_.keep(peer, mail);
  }
  wire_->take(peer);
}

// What that rank says in its next collective.
const GlooMail& GlooBackend::collective_mail(int peer, const GlooCall& now) {
  for (;;) {
    const GlooMail& mail = wire_->mail(peer, now);
    if (mail.kind == GlooMail::Kind::call || mail.kind == GlooMail::Kind::work) {
      messages_.note_taken(peer, mail.taken);
      return mail;
    }
    keep_or_leave(peer, mail, now);
  }
}

// Calls that were compared meet planned ones, which were not, only by mistake.
const GlooMail& GlooBackend::work_mail(int peer, const GlooCall& now) {
  const GlooMail& mail = collective_mail(peer, now);
  if (mail.kind != GlooMail::Kind::work || mail.call != now.call) {
    fail_different(now);
  }
  return mail;
}

void GlooBackend::fail_different(const GlooCall& now) {
  std::vector<Collective> calls(static_cast<std::size_t>(size()), now.call);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      calls[static_cast<std::size_t>(peer)] = collective_mail(peer, now).call;
    }
  }
  wire_->fail(mismatch_error(calls_side_by_side(calls), odd_one_out(calls), now.call, now.time));
}

// Where this call's data goes: the same on all ranks that make this call now, and elsewhere on others, so that what is
// too long for them never arrives.
std::uint64_t GlooBackend::data_slots(const GlooCall& now) const {
  const Collective& call = now.call;
  std::uint64_t hash = mix(0, collectives_);
  for (const auto value :
       {static_cast<std::int64_t>(call.kind), static_cast<std::int64_t>(call.dtype), static_cast<std::int64_t>(call.op),
        static_cast<std::int64_t>(call.root), static_cast<std::int64_t>(call.tag), call.shape.numel()}) {
    hash = mix(hash, static_cast<std::uint64_t>(value));
  }
  return hash << 1 | std::uint64_t{1} << 63;
}

void GlooBackend::exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) {
  const SigpipeBlock no_signals;
  const GlooCall now{mine, time};
  wire_->check();
  messages_.note_call(mine);
  if (shared_ != nullptr) {
    return exchange_in_memory(all, now);
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      post(GlooMail::Kind::call, peer, nullptr, 0, now);
    }
  }
  all[static_cast<std::size_t>(rank())] = mine;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      Collective& theirs = all[static_cast<std::size_t>(peer)];
      theirs = collective_mail(peer, now).call;
      wire_->note_call(peer, theirs);
      wire_->take(peer);
    }
  }
}

void GlooBackend::run(const Collective& call, const Buffers& buffers, const CallTime& time) {
  const SigpipeBlock no_signals;
  const GlooCall now{call, time};
  wire_->check();
  if (call.kind != Kind::send && call.kind != Kind::recv) {
    ++collectives_;
    messages_.note_call(call);
  }
  switch (call.kind) {
    case Kind::send: return messages_.send(buffers, now);
    case Kind::recv: return messages_.receive(buffers, now);
    case Kind::broadcast:
      // The root only reads.
      return broadcast(call.root == rank() ? const_cast<void*>(buffers.in) : buffers.out, buffers.numel, now);
    case Kind::all_gather:
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all: return move_parts(buffers, now);
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter: return reduce(buffers, now);
    case Kind::barrier: return meet(now);
    case Kind::new_group: return;
  }
}

bool GlooBackend::await_message(const Collective& call, const CallTime& time) {
  const SigpipeBlock no_signals;
  return messages_.await({call, time});
}

void GlooBackend::meet(const GlooCall& now) {
  tell_all(nullptr, 0, now, [](int, const void*) {});
}

void GlooBackend::tell_all(const void* payload, std::size_t bytes, const GlooCall& now,
                           core::FunctionRef<void(int, const void*)> hear) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      post(GlooMail::Kind::work, peer, payload, bytes, now);
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      const GlooMail& mail = work_mail(peer, now);
      if (mail.payload != bytes) {
        fail_different(now);
      }
      hear(peer, payload_of(mail));
      wire_->take(peer);
    }
  }
}

std::unique_ptr<Backend> GlooBackend::split(std::span<const int> members, const CallTime& time) {
  const SigpipeBlock no_signals;
  const std::uint64_t number = splits_++;
  const auto place = std::find(members.begin(), members.end(), rank());
  if (place == members.end()) {
    return nullptr;
  }
  GlooOptions options = options_;
  options.prefix = fmt::format("{}/group{}.{}", options_.prefix, number, members.front());
  options.rank = static_cast<int>(place - members.begin());
  options.size = static_cast<int>(members.size());
  if (options.alarm) {
    options.alarm = std::make_shared<Alarm>(options.alarm, std::vector<int>(members.begin(), members.end()));
  }
  std::unique_ptr<GlooWire> wire = gloo_wire(options, device_, time.deadline, false);
  auto backend = std::make_unique<GlooBackend>(std::move(options), device_, std::move(wire));
  backend->share_memory(time);
  return backend;
}

void GlooBackend::abort(const CommError& cause) noexcept {
  if (!options_.alarm) {
    return wire_->abort(cause);
  }
  options_.alarm->ring(cause);
  wire_->abort(options_.alarm->cause().value_or(cause));  // what was first, and led to this
}

}  // namespace tandem::inline v0::parallel
