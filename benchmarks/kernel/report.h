#pragma once

#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

namespace bench::kernel {

/// A share of the roofline from which on a family counts as fast.
inline constexpr double kEnough = 0.85;

/// Prints a table for each family, then how many families reach kEnough.
class Table : public benchmark::BenchmarkReporter {
 public:
  /// `headings` are printed first.
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  struct Row {
    std::string name, dtype, size;
    std::map<std::string, double> counters;
  };
  void print_family();

  std::vector<std::string> headings_;
  std::string family_;
  std::vector<Row> rows_;  // of the family
  struct Share {
    std::string family;
    std::vector<std::pair<double, std::string>> shares;  // f32, large
  };
  std::vector<Share> families_;
};

}  // namespace bench::kernel
