#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: all code that writes files uses these functions.

namespace tandem::inline v0::core {

/// Throws IoError "cannot <operation> '<path>': <text of error_number>".
[[noreturn]] TANDEM_API void fail_io(std::string_view operation, const std::string& path, int error_number);

/// Writes all bytes; continues after signals and short writes. Returns false, with errno set, if the system refuses.
TANDEM_API bool write_all(int descriptor, std::string_view bytes) noexcept;

/// Replaces the content of `path` with `parts`, one after the other. Another process, or a reader after a crash, sees
/// either the old content or the new one, never a part: the bytes go to a temporary file in the same directory, which
/// is then renamed. Several writers may write one path at once; the last one wins. A symbolic link is followed.
///
/// Throws IoError with the path and the system's reason. Also throws if `path` exists and is not a regular file (a
/// device, a pipe, a directory). After an error the previous content is untouched and the temporary file is removed.
TANDEM_API void replace_file(const std::string& path, std::initializer_list<std::string_view> parts);

}  // namespace tandem::inline v0::core
