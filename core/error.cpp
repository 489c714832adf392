#include <tandem/core/error.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace tandem::inline v0 {

namespace {

// The text of the thread's newest Error. A destructor that runs because of an exception cannot ask the language for it.
class NewestText {
 public:
  ~NewestText() { is_gone_ = true; }
  // Errors may still be made when the thread's variables are gone: by destructors of static objects.
  static void set(const std::shared_ptr<const std::string>& text) {
    if (!is_gone_) {
      of_thread().text_ = text;
    }
  }
  static std::shared_ptr<const std::string> get() { return is_gone_ ? nullptr : of_thread().text_.lock(); }

 private:
  static NewestText& of_thread() {
    thread_local NewestText one;
    return one;
  }

  static inline thread_local bool is_gone_ = false;
  std::weak_ptr<const std::string> text_;
};

}  // namespace

Error::Error(std::string message, std::source_location where)
    : message_(std::make_shared<std::string>(std::move(message))), where_(where) {
  NewestText::set(message_);
}

const char* Error::what() const noexcept { return message_->c_str(); }

Error& Error::add_context(std::string_view context) {
  // A copy of this exception may be in flight elsewhere, so a shared text is never changed.
  auto extended = std::make_shared<std::string>(*message_);
  extended->append("\n  ").append(context);
  message_ = std::move(extended);
  NewestText::set(message_);
  return *this;
}

std::string_view name(CommFault fault) noexcept {
  switch (fault) {
    case CommFault::peer_lost: return "peer_lost";
    case CommFault::timeout: return "timeout";
    case CommFault::mismatch: return "mismatch";
    case CommFault::aborted: return "aborted";
    case CommFault::init: return "init";
  }
  return "unknown";
}

CommError::CommError(std::string message, const Details& details, std::source_location where)
    : Error(std::move(message), where), details_(details) {}

namespace core {

namespace {

// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::string error_in_flight() {
  const std::shared_ptr<const std::string> text = NewestText::get();
  return text != nullptr && std::uncaught_exceptions() > 0 ? *text : std::string();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string result;
  for (const std::string& candidate : candidates) {
    if (const std::size_t distance = edit_distance(word, candidate); distance < best) {
      best = distance;
      result = candidate;
    }
  }
  return result;
}

}  // namespace core
}  // namespace tandem::inline v0
