#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/kernels/cuda/matmul/plan_key.h>

// Internal: choices of matrix products as text. Needs no CUDA header.

namespace tandem::inline v0::kernels::gpu {

/// The fastest plan that was found for a key.
struct PlanRecord {
  PlanKey key{};
  std::size_t version = 0;  // of cuBLASLt
  bool separate = false;    // the simpler product, and then kernels for what is missing; no algorithm
  std::size_t workspace = 0;
  int kernels = 0;
  double time_us = 0;
  std::array<std::uint64_t, 8> algorithm{};
  std::string gpu{};  // its name

  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

/// A header and a line for each record, ordered by key.
TANDEM_API std::string write_plans(std::span<const PlanRecord> records);
/// The records of such a text. Throws IoError "<path>:<line>: ..." unless all of it is as write_plans() writes it,
/// apart from the order.
TANDEM_API std::vector<PlanRecord> parse_plans(std::string_view text, const std::string& path);

/// The records of a file. Throws IoError.
std::vector<PlanRecord> read_plan_file(const std::string& path);

}  // namespace tandem::inline v0::kernels::gpu
