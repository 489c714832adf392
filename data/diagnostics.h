#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Internal: what readers quote in their errors, and how errors of data sets travel.

namespace tandem::inline v0::data {

/// A piece of a file made fit for an error message: in single quotes, control bytes written as \xNN, at most `limit`
/// bytes of the original (cut between UTF-8 characters, "..." added).
std::string excerpt(std::string_view text, std::size_t limit);

/// What a file is by its first bytes, with article ("a PNG picture"), for "this looks like ..."; empty when they tell
/// nothing. Never true of a CSV file; an IDX file is recognised as such.
std::string_view recognise(std::string_view head);

/// True when the first bytes are printable ASCII, as in CSV files.
bool looks_like_text(std::string_view head);

/// Throws ConfigError unless a data set of `size` samples has sample `index`; `what` is its type.
void check_sample(const char* what, std::int64_t index, std::int64_t size);

/// Inside a catch: throws what was caught on, with the line "while <doing>". What is not tandem's becomes a
/// tandem::Error with the same text, and the original nested inside.
[[noreturn]] void rethrow_while(std::string_view doing);

}  // namespace tandem::inline v0::data
