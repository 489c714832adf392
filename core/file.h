#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: how files are written, by whoever writes them.

namespace tandem::inline v0::core {

/// Throws IoError "cannot <operation> '<path>': <text of error_number>".
[[noreturn]] TANDEM_API void fail_io(std::string_view operation, const std::string& path, int error_number);

/// Writes all bytes, going on after signals and short writes. False with errno set when the system refuses.
TANDEM_API bool write_all(int descriptor, std::string_view bytes) noexcept;

/// Makes `parts`, one after the other, the whole content of `path`. Others, and whoever looks after a crash, see the
/// old content or the new one, never a part: the bytes go to a temporary file beside it, which is then renamed. Several
/// writers may write one path at once; the last one stays. A link is followed.
///
/// Throws IoError with the path and the system's reason, and for anything that is there but is no file (a device, a
/// pipe, a directory). What was there before is then untouched, and the temporary file is gone.
TANDEM_API void replace_file(const std::string& path, std::initializer_list<std::string_view> parts);

}  // namespace tandem::inline v0::core
