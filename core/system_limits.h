#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <tandem/core/export.h>

// Internal: what the system allows this process, for error messages that say which limit was reached and how to raise
// it.

namespace tandem::inline v0::core {

/// The system's message for an errno value. After the messages for open files (EMFILE, ENFILE), threads and processes
/// (EAGAIN), and memory (ENOMEM), the limit and the command that raises it follow.
TANDEM_API std::string system_message(int error);

/// EMFILE, ENFILE, EAGAIN or ENOMEM if that is what an exception reports: by its code, by its type, or, for exceptions
/// of other libraries, by the system's message in its text. Otherwise 0.
TANDEM_API int shortage_in(const std::exception& error);

/// The exception's text. If it reports a shortage without naming the limit, as the exceptions of the standard library
/// do, system_message() takes the place of the system's message.
TANDEM_API std::string explain(const std::exception& error);

/// Throws std::system_error (EMFILE or ENFILE) unless `count` more descriptors can be opened now.
TANDEM_API void require_descriptors(int count);

/// Throws IoError "no thread for <purpose>: <system_message(error)>".
[[noreturn]] TANDEM_API void fail_thread(const char* purpose, int error);

/// Starts a thread (std::thread or std::jthread). Throws the error of fail_thread() if the system refuses.
template <class Thread = std::thread, class Work>
Thread start_thread(const char* purpose, Work&& work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    fail_thread(purpose, error.code().value());
  }
}

/// Bytes that `ulimit -v` leaves; nothing without that limit.
TANDEM_API std::optional<std::uint64_t> free_addresses();

/// How many bytes of host memory this process may still get: the least of what the machine, the process's containers
/// (cgroups) and `ulimit -v` leave.
TANDEM_API std::uint64_t free_memory();

}  // namespace tandem::inline v0::core
