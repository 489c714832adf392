#include <tandem/core/error.h>

#include <utility>

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

}  // namespace tandem::inline v0
