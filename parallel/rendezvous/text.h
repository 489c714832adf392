#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

// Internal: untrusted text from the environment or from the wire, which may contain anything, and messages that show
// it.

namespace tandem::inline v0::parallel {

/// Parses `text` as a decimal number within [least, most]. Only a leading '-' and digits are allowed.
std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least, std::int64_t most);

/// `key` in printable form: at most 80 bytes, with a dot for each character that a terminal would interpret.
std::string shown_key(std::string_view key);

/// Throws a StoreError with the formatted message, as fail() throws the other errors.
template <class... Args>
[[noreturn]] void fail_store(StoreError::Kind kind, LocatedFormat<std::type_identity_t<Args>...> format,
                             const Args&... args) {
  throw StoreError(kind, fmt::vformat(format.text, fmt::make_format_args(args...)), format.where);
}

/// Whether `host` consists of 1 to 253 letters, digits and ".-_", or characters in `more`.
bool is_host_name(std::string_view host, std::string_view more = {});

/// "node7:29500", or "[::1]:29500" for an IPv6 address.
std::string at_port(const std::string& address, int port);

/// "rank 2 (pid 4711 on node7)".
std::string rank_name(int rank, std::int64_t pid, const std::string& host);

/// "signal 9 (SIGKILL)".
std::string signal_text(int number);
/// How a process with this status from waitpid() ended: "was killed by signal 9 (SIGKILL)", "ended with exit code 3".
std::string end_text(int status);

/// The number of tasks on the node with this number: slurm_tasks_on("2(x3),1", 3) is 1. std::nullopt if the list is
/// malformed before that node's entry, or too short.
TANDEM_API std::optional<int> slurm_tasks_on(std::string_view list, int node);

/// The first host of a list: "gpu-007" of "gpu-[007-012,20],login". std::nullopt if the list's start is malformed.
TANDEM_API std::optional<std::string> slurm_first_host(std::string_view list);

}  // namespace tandem::inline v0::parallel
