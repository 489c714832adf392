#include <tandem/parallel/launch/local_rank.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::streamoff kTail = 16'384;                // of a log, in which they are looked for
constexpr std::chrono::milliseconds kAfterTheEnd{200};  // for output of what outlived a rank, in a session of its own

// On a terminal ranks are told apart by colour.
std::string prefix_of(int rank, int target) {
  constexpr std::array<int, 6> kColours{36, 33, 32, 35, 34, 31};
  if (::isatty(target) == 0 || std::getenv("NO_COLOR") != nullptr) {
    return fmt::format("[{}] ", rank);
  }
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColours[static_cast<std::size_t>(rank) % kColours.size()], rank);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    std::array<int, 2> ends{-1, -1};
    const bool made = ::pipe2(ends.data(), O_CLOEXEC) == 0;  // errno is read after it
    check<IoError>(made, "launch: no pipe for a rank's output: {}", std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
    ::fcntl(read_end, F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    if (read_end >= 0) {
      ::close(read_end);
    }
    ::close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

struct Log {
  int descriptor;

  Log(const std::string& path, bool continues) {
    const int mode = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (continues ? 0 : O_TRUNC);
    descriptor = ::open(path.c_str(), mode, 0644);
    if (descriptor < 0) {
      core::fail_io("write a rank's output to", path, errno);
    }
  }
  ~Log() { ::close(descriptor); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
};

}  // namespace

LocalRank::LocalRank(const LaunchOptions& options, int rank, bool continues_log, ChildPlan plan,
                     std::atomic<pid_t>& group)
    : rank_(rank),
      out_{-1, STDOUT_FILENO, LineStream(prefix_of(rank, STDOUT_FILENO), 0)},
      err_{-1, STDERR_FILENO, LineStream(prefix_of(rank, STDERR_FILENO), kLastLines)} {
  switch (options.output) {
    case LaunchOptions::Output::prefixed: {
      Pipe out;
      Pipe err;
      plan.out = out.write_end;
      plan.err = err.write_end;
      process_ = std::make_unique<ChildProcess>(plan, group);
      out_.descriptor = std::exchange(out.read_end, -1);
      err_.descriptor = std::exchange(err.read_end, -1);
      break;
    }
    case LaunchOptions::Output::files: {
      log_ = fmt::format("{}/rank{}.err", options.log_folder, rank);
      const Log out(fmt::format("{}/rank{}.out", options.log_folder, rank), continues_log);
      const Log err(log_, continues_log);
      log_start_ = ::lseek(err.descriptor, 0, SEEK_END);
      plan.out = out.descriptor;
      plan.err = err.descriptor;
      process_ = std::make_unique<ChildProcess>(plan, group);
      break;
    }
    case LaunchOptions::Output::inherited: process_ = std::make_unique<ChildProcess>(plan, group);
  }
  pid_ = process_->pid();
}

LocalRank::~LocalRank() {
  for (const int descriptor : {out_.descriptor, err_.descriptor}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
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
    asked_ = name == nullptr || process_->has_ended() ? asked_ : name;  // its end may not be noted yet
    process_->signal(number);
  }
}

void LocalRank::add_to(std::vector<pollfd>& polled, bool reads) const {
  if (!ended_ && process_->descriptor() >= 0) {
    polled.push_back({process_->descriptor(), POLLIN, 0});
  }
  for (const int descriptor : {out_.descriptor, err_.descriptor}) {
    if (reads && descriptor >= 0) {
      polled.push_back({descriptor, POLLIN, 0});
    }
  }
}

void LocalRank::pump(OutputQueue& output) {
  for (Stream* stream : {&out_, &err_}) {
    if (stream->descriptor >= 0 && !read(*stream, output)) {
      output.push(stream->target, stream->lines.finish());
      ::close(std::exchange(stream->descriptor, -1));
    }
  }
}

// False at the end.
bool LocalRank::read(Stream& stream, OutputQueue& output) const {
  std::array<char, 65536> buffer;
  for (int pass = 0; pass < 2; ++pass) {  // a pipe holds no more than the first takes; others' turn then
    const ssize_t got = ::read(stream.descriptor, buffer.data(), buffer.size());
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
  return {rank_, pid_, status_, std::chrono::duration<double>(ended_at_ - start).count(), asked_};
}

}  // namespace tandem::inline v0::parallel
