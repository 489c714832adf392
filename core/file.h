#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tandem/core/export.h>
#include <tandem/core/file_ops.h>

// Internal: all code that writes files uses these functions; descriptors have an owner.

namespace tandem::inline v0::core {

/// Throws IoError "cannot <operation> '<path>': <text of error_number>". If the disk or a quota is full, the text gives
/// `bytes`, what was to be written, and what is free there.
[[noreturn]] TANDEM_API void fail_io(std::string_view operation, const std::string& path, int error_number,
                                     std::size_t bytes = 0);

/// Owns a file descriptor.
class TANDEM_API Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  /// The system's number; -1: none.
  int get() const noexcept { return number_; }
  /// Closes the descriptor, if there is one.
  void close() noexcept;

 private:
  int number_ = -1;
};

/// Both ends of a pipe, which executed programs do not inherit.
struct TANDEM_API Pipe {
  /// `flags` are those of pipe2(). Throws IoError "<failure>: <the system's reason>".
  explicit Pipe(std::string_view failure, int flags = 0);

  Descriptor read_end;
  Descriptor write_end;
};

/// Opens a regular file for writing, also in a folder where others may create names: refuses a symbolic link, a name
/// with a second hard link, and everything that is not a regular file, and never blocks. `flags` are those of open();
/// the content goes (O_TRUNC) only once the file is known to be one. Throws IoError "cannot <operation> '<path>': ...".
TANDEM_API Descriptor open_regular(std::string_view operation, const std::string& path, int flags, unsigned mode);

/// The content of a small regular file, of at most 4 KiB: never waits, and follows no symbolic link. Nothing if there
/// is no such file, or if it cannot be read.
TANDEM_API std::optional<std::string> read_small_file(const std::string& path);

/// Writes all bytes; continues after signals and short writes. Returns false, with errno set, if the system refuses.
TANDEM_API bool write_all(int descriptor, std::string_view bytes) noexcept;

/// Replaces the content of `path` with `parts`, one after the other. Another process, or a reader after a crash, sees
/// either the old content or the new one, never a part: the bytes go to a temporary file in the same directory, which
/// is synchronised with the disk and then renamed. Several writers may write one path at once, on several hosts too;
/// the last one wins. A symbolic link is followed, and the file's permissions stay. A process that is killed meanwhile
/// leaves its temporary file, `path.tmp-<16 digits>`.
///
/// Throws IoError with the path and the system's reason. Also throws if `path` exists and is not a regular file (a
/// device, a pipe, a directory). After an error the previous content is untouched and the temporary file is removed,
/// unless the error says that the new content is there and may not survive a power failure.
TANDEM_API void replace_file(const std::string& path, std::span<const std::string_view> parts,
                             FileOps& ops = FileOps::system());
inline void replace_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  replace_file(path, std::span(parts.begin(), parts.size()));
}

}  // namespace tandem::inline v0::core
