#include <tandem/parallel/job/line_output.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>

#include <poll.h>
#include <unistd.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kRemembered = 400;     // bytes of a remembered line
constexpr std::size_t kJoined = 64U << 10U;  // smaller parts are joined with the next
constexpr std::size_t kAtATime = PIPE_BUF;   // a pipe that is ready for writing has room for this many bytes

}  // namespace

void OutputQueue::push(int descriptor, std::string text) {
  if (text.empty() || std::find(broken_.begin(), broken_.end(), descriptor) != broken_.end()) {
    return;
  }
  size_ += text.size();
  if (!parts_.empty() && parts_.back().descriptor == descriptor && parts_.back().text.size() < kJoined) {
    parts_.back().text += text;
  } else {
    parts_.push_back({descriptor, std::move(text)});
  }
}

void OutputQueue::write_some() {
  while (!parts_.empty()) {
    Part& part = parts_.front();
    pollfd ready{part.descriptor, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1) {
      return;
    }
    const std::size_t length = std::min(kAtATime, part.text.size() - written_);
    const ssize_t written = ::write(part.descriptor, part.text.data() + written_, length);
    if (written >= 0) {
      written_ += static_cast<std::size_t>(written);
      size_ -= static_cast<std::size_t>(written);
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {
      error_ = error_ == 0 ? errno : error_;
      broken_.push_back(part.descriptor);
      size_ -= part.text.size() - written_;
      written_ = part.text.size();
    }
    if (written_ == part.text.size()) {
      parts_.pop_front();
      written_ = 0;
    }
  }
}

void OutputQueue::flush(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!parts_.empty() && std::chrono::steady_clock::now() < end) {
    pollfd ready{next(), POLLOUT, 0};
    ::poll(&ready, 1, 100);
    write_some();
  }
}

std::string LineStream::feed(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t room = kMaxLine - begun_.size();
    const std::size_t end = bytes.substr(0, room + 1).find('\n');
    const bool is_ended = end != std::string_view::npos;
    begun_ += bytes.substr(0, is_ended ? end : room);
    if (!is_ended && bytes.size() <= room) {
      break;
    }
    end_line(text);
    bytes.remove_prefix(is_ended ? end + 1 : room);
  }
  return text;
}

std::string LineStream::finish() {
  std::string text;
  if (!begun_.empty()) {
    end_line(text);
  }
  return text;
}

void LineStream::end_line(std::string& text) {
  text.append(prefix_).append(begun_).push_back('\n');
  if (keep_ > 0) {
    if (last_.size() == keep_) {
      last_.pop_front();
    }
    last_.push_back(begun_.substr(0, kRemembered));
  }
  begun_.clear();
}

}  // namespace tandem::inline v0::parallel
