#pragma once

#include <functional>
#include <string>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Calls `handler` with the text of each warning, from whatever thread it arises on; an empty one puts back the
/// default, a line on stderr.
TANDEM_API void set_warning_handler(std::function<void(const std::string& text)> handler);

namespace core {

/// Something works, but hardly as meant. Say it once per place: the caller keeps count.
TANDEM_API void warn(const std::string& text);

}  // namespace core
}  // namespace tandem::inline v0
