#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: how every writer puts the bytes of a file in place.

namespace tandem::inline v0::data {

/// Makes `parts`, one after the other, the whole content of `path`. Others, and whoever looks after a crash, see the
/// old content or the new one, never a part: the bytes go to a temporary file beside it, which is then renamed. Several
/// writers may write one path at once; the last one stays. A link is followed.
///
/// Throws IoError with the path and the system's reason, and for anything that is there but is no file (a device, a
/// pipe, a directory). What was there before is then untouched, and the temporary file is gone.
TANDEM_API void replace_file(const std::string& path, std::initializer_list<std::string_view> parts);

}  // namespace tandem::inline v0::data
