#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/hosts/hosts_backend.h>

// Ranks of one host share memory. If all ranks are on one host, comparisons, all-reduces, reduce-scatters and
// all-gathers use it, and the wire shows whether the other ranks are still alive. Otherwise calls are compared over the
// wire, and all-reduces use it.

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kGlance(1);     // time to find a mail that has arrived
constexpr std::chrono::milliseconds kPostTime(10);  // time to post a mail if the peer has read earlier ones
// The steps of reduce_by_hosts() have different deadlines: first the ranks of a host give up a rank of theirs, then the
// leaders give up a leader, and last the other ranks their leader. So nobody blames a rank that waits for another.
constexpr std::chrono::milliseconds kStep(250);

}  // namespace

// Every rank tells the others where it listens. If some listen at one address, every rank tells the others where its
// part is, and then whether it could open all other parts of its host. If one could not, nobody shares memory.
void HostsBackend::share_memory(const CallTime& time) {
  leaders_ = ranks_;
  Collective call;
  call.kind = CollectiveKind::new_group;
  const CallInProgress now{call, time};
  using Host = std::array<char, 64>;  // empty: the rank does not share memory
  std::vector<Host> hosts(ranks_.size(), Host{});
  Host& here = hosts[static_cast<std::size_t>(rank())];
  if (options_.shared_memory) {
    options_.address.copy(here.data(), here.size() - 1);
  }
  tell_all(&here, sizeof here, now, [&](int peer, const Mail& mail) {
    std::memcpy(&hosts[static_cast<std::size_t>(peer)], payload_of(mail), sizeof(Host));
  });
  std::vector<int> leaders;
  for (const int r : ranks_) {
    const Host& host = hosts[static_cast<std::size_t>(r)];
    if (std::find(hosts.begin(), hosts.begin() + r, host) == hosts.begin() + r) {
      leaders.push_back(r);
    }
    if (host == here) {
      neighbours_.push_back(r);
    }
  }
  if (leaders.size() == ranks_.size() || std::find(hosts.begin(), hosts.end(), Host{}) != hosts.end()) {
    return;
  }

  const auto place = [&](int r) {
    return static_cast<int>(std::find(neighbours_.begin(), neighbours_.end(), r) - neighbours_.begin());
  };
  const int neighbours = static_cast<int>(neighbours_.size());
  SharedMemory::Address own;
  std::uint8_t agreed = 1;
  try {
    if (neighbours > 1) {
      shared_ = std::make_unique<SharedGroup>(place(rank()), neighbours);
      own = shared_->memory().address();
    }
  } catch (const IoError&) {  // the other ranks must learn of the failure
    agreed = 0;
  }
  tell_all(&own, sizeof own, now, [&](int peer, const Mail& mail) {
    SharedMemory::Address address;
    std::memcpy(&address, payload_of(mail), sizeof address);
    if (shared_ != nullptr && place(peer) < neighbours && !shared_->memory().open(place(peer), address)) {
      agreed = 0;
    }
  });
  const std::uint8_t opened = agreed;
  tell_all(&opened, sizeof opened, now,
           [&](int, const Mail& mail) { agreed &= *static_cast<const std::uint8_t*>(payload_of(mail)); });
  if (agreed == 0) {
    shared_.reset();
    return;
  }
  leaders_ = std::move(leaders);
  if (shared_ != nullptr) {
    shared_->memory().seal();
  }
}

void HostsBackend::exchange_in_memory(std::span<Collective> all, const CallInProgress& now) {
  shared_->exchange(now.call, all, now.time, [&](bool is_long) { look_after(now, now.time, is_long); });
  note_calls(all);
}

void HostsBackend::run_in_memory(const Buffers& buffers, const CallInProgress& now) {
  const auto compare = [&](std::span<const Collective> all) {
    note_calls(all);
    if (std::ranges::any_of(all, [&](const Collective& call) { return call != now.call; })) {
      wire_->fail(mismatch_error(all, now.call, now.time));
    }
  };
  shared_->run(now.call, buffers, now.time, [&](bool is_long) { look_after(now, now.time, is_long); }, compare);
}

// The ranks of each host reduce, then the leaders, then each leader hands the result to its host. Sums of 16-bit values
// travel in f32, so that they are rounded once. Every rank has compared the calls before it enters shared memory: from
// then on only a failure keeps a neighbour away.
void HostsBackend::reduce_by_hosts(const Buffers& buffers, const CallInProgress& now) {
  const Collective& call = now.call;
  if (call.planned) {
    tell_all(nullptr, 0, now, [](int, const Mail&) {});
  }
  const bool widens = is_reduced_floating_point(call.dtype);
  Collective between = call;
  between.planned = false;
  between.dtype = widens ? DType::f32 : call.dtype;
  Collective within = between;
  within.op = call.op == ReduceOp::avg ? ReduceOp::sum : call.op;  // only the last step divides
  Buffers values = buffers;
  if (widens) {
    wide_.resize(std::max(wide_.size(), bytes_of(within, buffers)));
    values.out = wide_.data();
    values.in = values.out;
    convert(call.dtype, buffers.in, DType::f32, values.out, buffers.numel);
  }
  const auto left = now.time.deadline - Clock::now();
  const auto step = std::clamp<Clock::duration>(left / 10, Clock::duration(0), kStep);
  CallTime among_hosts = now.time;
  among_hosts.deadline -= step;
  CallTime time = among_hosts;  // among the ranks of this host
  time.deadline -= step;
  const bool leads = shared_ == nullptr || neighbours_.front() == rank();
  if (shared_ != nullptr) {
    shared_->run(
        within, {.in = values.in, .out = leads ? values.out : nullptr, .numel = values.numel}, time,
        [&](bool is_long) { look_after({call, time}, time, is_long); }, [](std::span<const Collective>) {});
    values.in = values.out;
  }
  if (leads) {
    reduce_among(leaders_, between, values, {call, among_hosts});
  }
  if (leads && widens) {
    convert(DType::f32, values.out, call.dtype, buffers.out, buffers.numel);
  }
  if (shared_ != nullptr) {
    shared_->broadcast(buffers.out, bytes_of(call, buffers), time,
                       [&](bool is_long) { look_after({call, time}, now.time, is_long); });
  }
}

// Performs the checks that a wait for mails includes.
void HostsBackend::look_after(const CallInProgress& now, const CallTime& of_leader, bool is_long) {
  // Decide once: a peer must not be blamed because the deadline passed while another was being checked.
  const auto begin = Clock::now();
  for (std::size_t place = 0; place < neighbours_.size(); ++place) {
    const int peer = neighbours_[place];
    const CallTime& time = place == 0 ? of_leader : now.time;
    const auto has_come = [&] { return shared_->memory().has_come(static_cast<int>(place)); };
    while (!has_come()) {
      const Wire::Waited waited = wire_->look(peer, Clock::now() + kGlance);
      if (has_come()) {
        break;  // its mails and its departure may belong to a later call
      }
      if (waited == Wire::Waited::broken) {
        wire_->fail_lost(peer, now);
      }
      if (waited == Wire::Waited::late && begin >= time.deadline) {
        wire_->fail_late(peer, false, {now.call, time});
      }
      if (waited == Wire::Waited::late) {
        wire_->tell_if_due(peer, now);
        if (is_long) {  // the peer may wait for a mail of this rank
          wire_->try_post(peer, {.kind = Mail::Kind::waiting, .call = now.call}, nullptr, 0, Clock::now() + kPostTime);
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
