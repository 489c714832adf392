#include <tandem/parallel/job/local_rank.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/cores.h>
#include <tandem/core/file.h>
#include <tandem/parallel/job/membership.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::streamoff kTail = 16'384;  // end of a log to search for the last lines
constexpr std::chrono::milliseconds kAfterTheEnd{
    200};  // for output of processes that outlive a rank in their own session

// Colours tell the ranks apart on a terminal.
std::string prefix_of(const LaunchOptions& options, int rank, int target) {
  if (options.output == LaunchOptions::Output::plain) {
    return {};
  }
  constexpr std::array<int, 6> kColours{36, 33, 32, 35, 34, 31};
  if (::isatty(target) == 0 || std::getenv("NO_COLOR") != nullptr) {
    return fmt::format("[{}] ", rank);
  }
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColours[static_cast<std::size_t>(rank) % kColours.size()], rank);
}

core::Descriptor open_log(const std::string& path, bool continues) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | (continues ? 0 : O_TRUNC);
  constexpr const char* kOperation = "write a rank's output to";
  core::Descriptor log = core::open_regular(kOperation, path, flags & ~O_TRUNC, 0600);
  struct stat status{};
  if (::fstat(log.get(), &status) != 0 || ::fchmod(log.get(), 0600) != 0 ||
      ((flags & O_TRUNC) != 0 && ::ftruncate(log.get(), 0) != 0)) {
    core::fail_io(kOperation, path, errno);
  }
  check<IoError>(status.st_uid == ::geteuid(), "cannot {} '{}': the file belongs to another user; remove it",
                 kOperation, path);
  return log;
}

}  // namespace

int threads_per_rank(int ranks) {
  return process_environment("TANDEM_NUM_THREADS") ? 0 : std::clamp(core::available_cores() / ranks, 1, 256);
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const JobLink& link, int local,
                                          int first_generation) {
  const auto text = [](int number) { return std::to_string(number); };
  std::map<std::string, std::string> ours{
      {"RANK", text(options.node * options.ranks + local)},
      {"WORLD_SIZE", text(options.nodes * options.ranks)},
      {"LOCAL_RANK", text(local)},
      {"LOCAL_WORLD_SIZE", text(options.ranks)},
      {"GROUP_RANK", text(options.node)},
      {"GROUP_WORLD_SIZE", text(options.nodes)},
      {"MASTER_ADDR", options.host},
      {"MASTER_PORT", text(link.port())},
      {"TORCHELASTIC_RESTART_COUNT", text(link.attempt())},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", link.run_id()},
      {"TANDEM_JOB_TOKEN", link.token().hex()},
      {"TANDEM_STORE_HOSTED", "1"},
  };
  if (options.elastic > 0) {
    ours[kElasticVariable] = text(first_generation);
  }
  if (!options.identity_prefix.empty()) {
    std::map<std::string, std::string> hidden;
    for (const auto& [name, value] : ours) {
      hidden[options.identity_prefix + name] = value;
    }
    ours = std::move(hidden);
  }
  if (const int threads = threads_per_rank(options.ranks); threads > 0) {
    ours["TANDEM_NUM_THREADS"] = text(threads);
  }
  for (const std::string& variable : options.variables) {
    const std::size_t equals = variable.find('=');
    ours[variable.substr(0, equals)] = equals == std::string::npos ? "" : variable.substr(equals + 1);
  }
  // These variables may come from an outer launcher, or name the file with the token: they would contradict ours.
  const std::set<std::string> foreign{"TANDEM_JOB_TOKEN_FILE", "TANDEM_STORE_PORT", "TORCHELASTIC_USE_AGENT_STORE",
                                      core::kProgressVariable, kElasticVariable};
  std::vector<std::string> all;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    if (!ours.contains(name) && !foreign.contains(name)) {
      all.push_back(variable);
    }
  }
  for (const auto& [name, value] : ours) {
    all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

LocalRank::LocalRank(const LaunchOptions& options, int rank, bool continues_log, ChildPlan plan,
                     std::atomic<pid_t>& group)
    : rank_(rank),
      out_{STDOUT_FILENO, LineStream(prefix_of(options, rank, STDOUT_FILENO), 0)},
      err_{STDERR_FILENO, LineStream(prefix_of(options, rank, STDERR_FILENO), kLastLines)} {
  const auto pipe_to = [](Stream& stream) {
    core::Pipe pipe("launch: no pipe for a rank's output");
    ::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
    stream.descriptor = std::move(pipe.read_end);
    return std::move(pipe.write_end);
  };
  core::Descriptor out;  // the rank's ends, which this process needs no longer than for the start
  core::Descriptor err;
  if (options.output != LaunchOptions::Output::files) {
    out = pipe_to(out_);
    err = pipe_to(err_);
  } else {
    log_ = fmt::format("{}/rank{}.err", options.log_folder, rank);
    out = open_log(fmt::format("{}/rank{}.out", options.log_folder, rank), continues_log);
    err = open_log(log_, continues_log);
    log_start_ = ::lseek(err.get(), 0, SEEK_END);
  }
  plan.out = out.get();
  plan.err = err.get();
  plan.kept = progress_.descriptor();
  plan.environment.push_back(fmt::format("{}={}", core::kProgressVariable, plan.kept));
  process_ = std::make_unique<ChildProcess>(plan, group);
}

bool LocalRank::take_end(OutputQueue& output) {
  if (ended_ || !process_->has_ended()) {
    return false;
  }
  ended_at_ = Clock::now();
  status_ = process_->reap();
  ended_ = true;
  pump(output);
  return true;
}

void LocalRank::signal(int number, const char* name) {
  if (!ended_) {
    asked_ = name == nullptr || process_->has_ended() ? asked_ : name;  // the child may have ended unnoticed
    process_->signal(number);
  }
}

void LocalRank::add_to(std::vector<pollfd>& polled, bool reads) const {
  if (!ended_ && process_->descriptor() >= 0) {
    polled.push_back({process_->descriptor(), POLLIN, 0});
  }
  for (const Stream* stream : {&out_, &err_}) {
    if (reads && stream->descriptor.get() >= 0) {
      polled.push_back({stream->descriptor.get(), POLLIN, 0});
    }
  }
}

void LocalRank::pump(OutputQueue& output) {
  for (Stream* stream : {&out_, &err_}) {
    if (stream->descriptor.get() >= 0 && !read(*stream, output)) {
      output.push(stream->target, stream->lines.finish());
      stream->descriptor.close();
    }
  }
}

// False at the end of the stream.
bool LocalRank::read(Stream& stream, OutputQueue& output) const {
  std::array<char, 65536> buffer;
  for (int pass = 0; pass < 2; ++pass) {  // the first pass empties a pipe; then other streams get their turn
    const ssize_t got = ::read(stream.descriptor.get(), buffer.data(), buffer.size());
    if (got > 0) {
      output.push(stream.target, stream.lines.feed({buffer.data(), static_cast<std::size_t>(got)}));
    } else if (got == 0) {
      return false;
    } else {
      return errno == EINTR || (errno == EAGAIN && !(ended_ && Clock::now() - ended_at_ > kAfterTheEnd));
    }
  }
  return true;
}

std::deque<std::string> LocalRank::last_lines() const {
  if (log_.empty()) {
    return err_.lines.last_lines();
  }
  LineStream lines("", kLastLines);
  std::ifstream file(log_, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  const std::streamoff start = std::max<std::streamoff>(log_start_, size - kTail);
  if (file && size > start) {
    std::string text(static_cast<std::size_t>(size - start), '\0');
    file.seekg(start);
    file.read(text.data(), size - start);
    lines.feed(text);
    lines.finish();
  }
  return lines.last_lines();
}

RankEnd LocalRank::end(Clock::time_point start) const {
  return {rank_, process_->pid(), status_, std::chrono::duration<double>(ended_at_ - start).count(), asked_};
}

}  // namespace tandem::inline v0::parallel
