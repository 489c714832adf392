#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Internal: excerpts that readers quote in errors, and the rethrowing of data set errors.

namespace tandem::inline v0::data {

/// A part of a file in a form fit for an error message: in single quotes, control bytes written as \xNN, at most
/// `limit` bytes of the original (cut between UTF-8 characters, with "..." added).
std::string excerpt(std::string_view text, std::size_t limit = 40);

/// The first 20 names as excerpts, and the number of the others: "'a', 'b' and 3 more".
std::string list_of(const std::vector<std::string>& names);

/// The kind of a file judged by its first bytes, with article ("a PNG picture"), for "this looks like ...". Empty if
/// the bytes are inconclusive, which includes every CSV file. An IDX file is recognised.
std::string_view recognise(std::string_view head);

/// Whether the first bytes are printable ASCII, as in CSV files.
bool looks_like_text(std::string_view head);

/// Throws ConfigError unless a data set of `size` samples has sample `index`; `what` is the type of the data set.
void check_sample(const char* what, std::int64_t index, std::int64_t size);

/// Rethrows the exception that is being handled, with the line "while <doing>". Call this inside a catch block. A
/// foreign exception becomes a tandem::Error with equal text and the original nested inside.
[[noreturn]] void rethrow_while(std::string_view doing);

}  // namespace tandem::inline v0::data
