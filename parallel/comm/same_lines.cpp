#include <tandem/parallel/comm/same_lines.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/hash.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

namespace {

std::int64_t hash_of(const std::string& text) {
  return static_cast<std::int64_t>(core::fnv1a(text) >> 1);  // not negative, so that it can be negated
}

std::vector<std::string> lines_of(std::span<const std::uint8_t> text) {
  std::istringstream in(std::string(text.begin(), std::ranges::find(text, std::uint8_t{0})));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

void check_same(ProcessGroup& group, const char* who, const std::vector<std::string>& lines, const char* what,
                const char* advice) {
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  const std::int64_t hash = hash_of(text);
  const Tensor most = from_data(std::vector<std::int64_t>{hash, -hash, static_cast<std::int64_t>(text.size())}, {3},
                                on_cpu(DType::i64));
  group.all_reduce(most, ReduceOp::max);
  const auto numbers = most.span<std::int64_t>();
  if (numbers[0] == -numbers[1]) {
    return;
  }
  Tensor mine = zeros({numbers[2]}, on_cpu(DType::u8));
  std::ranges::copy(text, mine.mutable_data<std::uint8_t>());
  const Tensor all = empty({group.size(), numbers[2]}, on_cpu(DType::u8));
  group.all_gather_into_tensor(all, mine);
  const GroupNames& names = *group.queue()->names();
  const std::vector<std::string> first = lines_of(all[0].span<std::uint8_t>());
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::vector<std::string> other = lines_of(all[rank].span<std::uint8_t>());
    const auto [expected, got] = std::ranges::mismatch(first, other);
    const auto shown = [](auto line, auto end) { return line == end ? "nothing more" : *line; };
    check<ConfigError>(expected == first.end() && got == other.end(),
                       "{}: the ranks' {} differ. Rank {} has {}; rank {} has {}. {} [TDM-E613]", who, what,
                       names.rank(0), shown(expected, first.end()), names.rank(rank), shown(got, other.end()), advice);
  }
}

}  // namespace tandem::inline v0::parallel
