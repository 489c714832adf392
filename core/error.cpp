#include <tandem/core/error.h>

#include <utility>

namespace tandem::inline v0 {

Error::Error(std::string message, std::source_location where)
    : message_(std::make_shared<std::string>(std::move(message))), where_(where) {}

const char* Error::what() const noexcept { return message_->c_str(); }

Error& Error::add_context(std::string_view context) {
  // A copy of this exception may be in flight elsewhere: never change a shared text.
  auto extended = std::make_shared<std::string>(*message_);
  extended->append("\n  ").append(context);
  message_ = std::move(extended);
  return *this;
}

}  // namespace tandem::inline v0
