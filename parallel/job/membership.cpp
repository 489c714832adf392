#include <tandem/parallel/job/membership.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

std::string GenerationNote::key(int generation) { return fmt::format("elastic/{}", generation); }

std::string GenerationNote::text() const { return fmt::format("{} {} {}", port, newcomers, fmt::join(members, " ")); }

GenerationNote GenerationNote::parse(const std::string& text) {
  GenerationNote note;
  std::istringstream words(text);
  words >> note.port >> note.newcomers;
  for (int member = 0; words >> member;) {
    note.members.push_back(member);
  }
  if (note.port == 0 || note.members.empty()) {
    fail_store(StoreError::Kind::refused, "the launcher's note of a generation is '{}': is it of another version?",
               shown_key(text));
  }
  return note;
}

int GenerationNote::rank_of(int number) const {
  const auto found = std::find(members.begin(), members.end(), number);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

JobToken token_of_generation(const JobToken& job, int generation) {
  return job.derived(fmt::format("tandem run: generation {}", generation));
}

Membership::Membership(const LaunchOptions& options, JobLink& link)
    : link_(link),
      host_(options.host),
      heartbeat_limit_(options.heartbeat_limit),
      store_(std::make_unique<TcpStore>(
          TcpStoreOptions{.host = options.host,
                          .port = link.port(),
                          .token = link.token(),
                          .heartbeat_interval = std::min(std::chrono::milliseconds(1'000), heartbeat_limit_ / 2),
                          .heartbeat_limit = heartbeat_limit_})),
      members_(static_cast<std::size_t>(options.ranks)),
      server_(open(0)) {
  std::iota(members_.begin(), members_.end(), 0);
  note();
}

Membership::~Membership() = default;

// The job's server, and the parents of the processes, notice who is lost.
std::unique_ptr<StoreServer> Membership::open(int generation) {
  return std::make_unique<StoreServer>(StoreServerOptions{
      .host = host_,
      .token = token_of_generation(link_.token(), generation),
      .heartbeat_limit = heartbeat_limit_,
      .on_lost = [](const LostRank&) {},
      .on_verdict =
          [this, generation](const std::string& text) {
            link_.hear({.kind = LinkMessage::Kind::generation_verdict, .text = text, .generation = generation});
          }});
}

void Membership::note() {
  const std::string newcomers = store_->try_get(kNewcomers).value_or("0");
  store_->set(
      GenerationNote::key(generation_),
      GenerationNote{
          .port = server_->port(), .newcomers = std::strtoll(newcomers.c_str(), nullptr, 10), .members = members_}
          .text());
}

bool Membership::has(int rank) const { return std::find(members_.begin(), members_.end(), rank) != members_.end(); }

void Membership::change(std::vector<int> members, const std::string& cause) {
  members_ = std::move(members);
  ++generation_;
  last_ = std::exchange(server_, open(generation_));
  note();
  last_->publish_verdict(cause);
}

void Membership::publish(const std::string& verdict) { server_->publish_verdict(verdict); }

}  // namespace tandem::inline v0::parallel
