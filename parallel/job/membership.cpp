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

std::string done_key(int rank) { return fmt::format("elastic/done/{}", rank); }

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
      members_(static_cast<std::size_t>(options.ranks)) {
  std::iota(members_.begin(), members_.end(), 0);
  servers_.push_back(open(0));
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
  const GenerationNote note{.port = servers_.back()->port(), .newcomers = newcomers_, .members = members_};
  store_->set(GenerationNote::key(generation_), note.text());
  store_->set(kNewestGeneration, std::to_string(generation_));
}

bool Membership::has(int rank) const { return std::find(members_.begin(), members_.end(), rank) != members_.end(); }

void Membership::change(std::vector<int> members, const std::string& cause, bool takes_in) {
  members_ = std::move(members);
  ++generation_;
  if (takes_in) {
    newcomers_ = number_in(kNewcomers, 0);
  }
  servers_.push_back(open(generation_));
  note();
  servers_[servers_.size() - 2]->publish_verdict(cause);
}

std::vector<int> Membership::arrived() const {
  std::vector<int> arrived;
  for (const RankProcess& process : servers_.back()->ranks()) {
    if (process.rank < static_cast<int>(members_.size())) {
      arrived.push_back(members_[static_cast<std::size_t>(process.rank)]);
    }
  }
  return arrived;
}

int Membership::done_in(int rank) { return static_cast<int>(number_in(done_key(rank), -1)); }

std::int64_t Membership::number_in(const std::string& key, std::int64_t otherwise) {
  try {
    const std::optional<std::string> text = store_->try_get(key);
    return text ? std::strtoll(text->c_str(), nullptr, 10) : otherwise;
  } catch (const StoreError&) {
    return otherwise;  // the job is over
  }
}

void Membership::publish(const std::string& verdict) { servers_.back()->publish_verdict(verdict); }

}  // namespace tandem::inline v0::parallel
