#pragma once

#include <functional>
#include <string>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Passes the text of each warning to `handler`, on the thread that raises it. An empty handler restores the default, a
/// line on stderr.
TANDEM_API void set_warning_handler(std::function<void(const std::string& text)> handler);

namespace core {

/// Reports a condition that works but is probably not intended. Warn once per place; the caller keeps count.
TANDEM_API void warn(const std::string& text);
/// Warns, unless this process has warned with the same text before.
TANDEM_API void warn_once(const std::string& text);

}  // namespace core
}  // namespace tandem::inline v0
