#include <tandem/kernels/reduce.h>
#include <tandem/kernels/scan.h>

#include "kernel/case.h"

// Reductions of all elements, of rows and of columns; running sums.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

enum class Over : std::uint8_t { all, rows, columns };

struct Reduction {
  const char* name;
  ReduceOp op;
  double scale = 1;
  bool with_indices = false;
};

constexpr Reduction kReductions[] = {{.name = "sum", .op = ReduceOp::sum},
                                     {.name = "mean", .op = ReduceOp::sum, .scale = 0.001},
                                     {.name = "count_nonzero", .op = ReduceOp::nonzero},
                                     {.name = "max", .op = ReduceOp::max},
                                     {.name = "argmax", .op = ReduceOp::max, .with_indices = true}};

constexpr std::int64_t kReducedColumns = 1000;

Case reduce_case(DType dtype, Size size, const Reduction& reduction, Over over) {
  const std::int64_t columns = size == Size::tiny ? 10 : kReducedColumns;
  const std::int64_t rows = rows_of(size, columns);
  const std::int64_t count = rows * columns;
  Case made;
  const void* in = made.data.random(dtype, count);
  const std::int64_t outputs = over == Over::all ? 1 : over == Over::rows ? rows : columns;
  void* out = made.data.zeros(DType::f64, outputs);  // wide enough for every result
  Reduce kernel{.op = reduction.op,
                .dtype = dtype,
                .kept = {1, {outputs}},
                .reduced = {1, {count / outputs}},
                .out = along(out, 1),
                .in = along(in, over == Over::rows ? columns : 1),
                .in_reduced = along(in, over == Over::columns ? columns : 1),
                .scale = reduction.scale};
  if (reduction.with_indices) {
    kernel.indices = static_cast<std::int64_t*>(made.data.zeros(DType::i64, outputs));
  }
  made.run = launches(kernel);
  made.passes = {{reads(in, dtype, count)}};
  const char* what = over == Over::all ? "" : over == Over::rows ? " of rows" : " of columns";
  made.operation = {
      .name = std::string(reduction.name) + what, .dtype = "", .sizes = {rows, columns}, .in = {in}, .out = {out}};
  return made;
}

// Running sums along rows, down the columns, or through all elements.
Case cumsum_case(DType dtype, Size size, Over over) {
  const std::int64_t columns = size == Size::tiny ? 10 : kReducedColumns;
  const std::int64_t rows = rows_of(size, columns);
  const std::int64_t count = rows * columns;
  Case made;
  const void* in = made.data.random(dtype, count);
  void* out = made.data.zeros(dtype, count);
  made.run = launches(CumSum{.dtype = dtype,
                             .outer = over == Over::rows ? rows : 1,
                             .size = over == Over::rows      ? columns
                                     : over == Over::columns ? rows
                                                             : count,
                             .inner = over == Over::columns ? columns : 1,
                             .in = in,
                             .out = out});
  made.passes = {{reads(in, dtype, count), writes(out, dtype, count)}};
  const char* what = over == Over::all ? "" : over == Over::rows ? " of rows" : " of columns";
  made.operation = {
      .name = std::string("cumsum") + what, .dtype = "", .sizes = {rows, columns}, .in = {in}, .out = {out}};
  return made;
}

}  // namespace

void add_reductions(Cases& cases) {
  const std::pair<Over, std::string> ways[] = {
      {Over::all, " of all"}, {Over::rows, " of rows"}, {Over::columns, " of columns"}};
  for (const Reduction& reduction : kReductions) {
    for (const auto& [over, text] : ways) {
      cases.add("reduce", reduction.name + text, reduction.op == ReduceOp::sum ? kFloats : std::vector<DType>{kF32},
                [reduction, over = over](DType dtype, Size size) { return reduce_case(dtype, size, reduction, over); });
    }
  }
  for (const auto& [over, text] : ways) {
    cases.add("scan", "cumsum" + text, {DType::f32, DType::f64, DType::bf16},
              [over = over](DType dtype, Size size) { return cumsum_case(dtype, size, over); });
  }
}

}  // namespace bench::kernel
