#include "kernel/report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "step/measure.h"

namespace bench::kernel {

namespace {

// The counters that every case has; the others are the peers'.
const std::set<std::string> kOwnCounters{"GB/s", "GFLOP/s", "roofline", "share", "us"};

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string shown_time(double us) {
  return us < 100   ? fmt::format("{:.2f} us", us)
         : us < 1e5 ? fmt::format("{:.0f} us", us)
                    : fmt::format("{:.0f} ms", us / 1e3);
}

}  // namespace

bool Table::ReportContext(const Context&) {
  fmt::print("{}\n", fmt::join(headings_, "\n"));
  return true;
}

void Table::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const std::vector<std::string> parts = parts_of(run.run_name.function_name);
    if (parts.size() != 4 || run.run_type != Run::RT_Iteration) {
      continue;
    }
    if (parts[0] != family_) {
      print_family();
      family_ = parts[0];
    }
    Row row{.name = parts[1], .dtype = parts[2], .size = parts[3], .counters = {}};
    for (const auto& [name, counter] : run.counters) {
      row.counters[name] = counter.value;
    }
    rows_.push_back(std::move(row));
  }
}

void Table::print_family() {
  if (rows_.empty()) {
    return;
  }
  std::vector<std::string> peers;
  std::size_t width = 4;
  for (const Row& row : rows_) {
    width = std::max(width, row.name.size());
    for (const auto& [name, value] : row.counters) {
      if (!kOwnCounters.contains(name) && std::ranges::find(peers, name) == peers.end()) {
        peers.push_back(name);
      }
    }
  }
  fmt::print("\n{:{}}  dtype size   {:>10} {:>17} {:>9} {:>6}", family_, width, "time", "rate", "roofline", "share");
  for (const std::string& peer : peers) {
    fmt::print(" {:>9}", peer);
  }
  fmt::print("\n");
  Share family{.family = family_, .shares = {}};
  for (const Row& row : rows_) {
    const char* unit = row.counters.contains("GB/s") ? "GB/s" : "GFLOP/s";
    fmt::print("{:{}}  {:5} {:5}  {:>10} {:>9.1f} {:7} {:>9.1f} {:>6.2f}", row.name, width, row.dtype, row.size,
               shown_time(row.counters.at("us")), row.counters.at(unit), unit, row.counters.at("roofline"),
               row.counters.at("share"));
    for (const std::string& peer : peers) {
      const auto found = row.counters.find(peer);
      fmt::print(" {:>9}", found == row.counters.end() ? "" : fmt::format("{:.2f}", found->second));
    }
    fmt::print("\n");
    if (row.dtype == "f32" && row.size == "large") {
      family.shares.emplace_back(row.counters.at("share"), row.name);
    }
  }
  std::fflush(stdout);
  if (!family.shares.empty()) {
    families_.push_back(std::move(family));
  }
  rows_.clear();
}

void Table::Finalize() {
  print_family();
  if (families_.empty()) {
    return;
  }
  std::vector<std::string> below;
  std::size_t cases = 0;
  std::size_t fast_cases = 0;
  fmt::print("\n{:20} {:>6} {:>7}   (f32, large)\n", "family", "median", "lowest");
  for (Share& family : families_) {
    std::vector<double> values;
    for (const auto& [share, name] : family.shares) {
      values.push_back(share);
      ++cases;
      fast_cases += share >= kEnough ? 1 : 0;
    }
    const auto& [lowest, name] = *std::ranges::min_element(family.shares);
    fmt::print("{:20} {:>6.2f} {:>7.2f}   {}\n", family.family, median(values), lowest, name);
    if (median(values) < kEnough) {
      below.push_back(fmt::format("{} {:.2f}", family.family, median(values)));
    }
  }
  fmt::print("\n{} of {} families at >= {} of their roofline{}\n", families_.size() - below.size(), families_.size(),
             kEnough, below.empty() ? "" : fmt::format("; the others: {}", fmt::join(below, ", ")));
  fmt::print("{} of {} cases at >= {}\n", fast_cases, cases, kEnough);
}

}  // namespace bench::kernel
