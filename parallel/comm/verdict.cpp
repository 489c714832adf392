#include <tandem/parallel/comm/verdict.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::array kFaults = {CommFault::peer_lost, CommFault::timeout, CommFault::mismatch, CommFault::aborted,
                                CommFault::init};

// The number at the beginning of `text`, if `after` follows it.
std::optional<int> leading_rank(std::string_view text, std::string_view after) {
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || rank < 0 ||
      !text.substr(static_cast<std::size_t>(end - text.data())).starts_with(after)) {
    return std::nullopt;
  }
  return rank;
}

}  // namespace

std::string verdict_text(const CommError& error) {
  const CommError::Details& details = error.details();
  return details.rank < 0 ? fmt::format("{}: {}", name(details.fault), error.what())
                          : fmt::format("{} by rank {}: {}", name(details.fault), details.rank, error.what());
}

CommError verdict_error(const std::string& text) {
  constexpr std::string_view kRank = "rank ";
  constexpr std::string_view kBy = " by rank ";
  const std::string_view view = text;
  if (view.starts_with(kRank)) {
    if (const std::optional<int> rank = leading_rank(view.substr(kRank.size()), " ")) {
      return CommError(text, {.fault = CommFault::peer_lost, .rank = *rank});
    }
  }
  for (const CommFault fault : kFaults) {
    if (!view.starts_with(name(fault))) {
      continue;
    }
    const std::string_view rest = view.substr(name(fault).size());
    if (rest.starts_with(": ")) {
      return CommError(std::string(rest.substr(2)), {.fault = fault});
    }
    if (const auto rank = rest.starts_with(kBy) ? leading_rank(rest.substr(kBy.size()), ": ") : std::nullopt) {
      return CommError(std::string(rest.substr(rest.find(": ") + 2)), {.fault = fault, .rank = *rank});
    }
  }
  return CommError(text, {.fault = CommFault::aborted});
}

}  // namespace tandem::inline v0::parallel
