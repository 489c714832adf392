#pragma once

#include <string>
#include <string_view>

// Internal: writing files with errors that name the path, the operation and the system's reason.

namespace tandem::inline v0::telemetry {

/// Throws IoError "'path': cannot <operation>: <text of error_number>".
[[noreturn]] void fail_io(const std::string& path, std::string_view operation, int error_number);

/// Writes all bytes, going on after signals and short writes. False with errno set when the system refuses.
bool write_all(int fd, std::string_view bytes) noexcept;

/// Replaces the file as a whole: readers, and whoever looks after a crash, see the old content or the new one.
/// Writes `path`.tmp and renames it; on failure removes it and throws IoError. One writer a path at a time.
void replace_file(const std::string& path, std::string_view bytes);

}  // namespace tandem::inline v0::telemetry
