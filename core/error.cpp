#include <tandem/core/error.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace tandem::inline v0 {

Error::Error(std::string message, std::source_location where)
    : message_(std::make_shared<std::string>(std::move(message))), where_(where) {}

const char* Error::what() const noexcept { return message_->c_str(); }

Error& Error::add_context(std::string_view context) {
  // A copy of this exception may be in flight elsewhere, so a shared text is never changed.
  auto extended = std::make_shared<std::string>(*message_);
  extended->append("\n  ").append(context);
  message_ = std::move(extended);
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
