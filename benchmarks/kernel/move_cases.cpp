#include <tandem/kernels/compare.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/fill.h>
#include <tandem/kernels/gather.h>
#include <tandem/kernels/index.h>
#include <tandem/kernels/random.h>

#include "kernel/case.h"

// Copies, conversions, comparisons, indexing, fills and random numbers.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

Case copy_case(DType from, Size size, DType to, Accumulate accumulate) {
  const std::int64_t count = count_of(size);
  Case made;
  const void* in = made.data.random(from, count);
  void* out = made.data.zeros(to, count);
  made.run = launches(Copy{.in_dtype = from,
                           .out_dtype = to,
                           .accumulate = accumulate,
                           .loop = {1, {count}},
                           .out = along(out, 1),
                           .in = along(in, 1)});
  made.passes = {
      {reads(in, from, count), accumulate == Accumulate::yes ? updates(out, to, count) : writes(out, to, count)}};
  if (accumulate == Accumulate::no) {
    made.operation = {
        .name = "copy to " + std::string(tandem::name(to)), .dtype = "", .sizes = {count}, .in = {in}, .out = {out}};
  }
  return made;
}

enum class Form : std::uint8_t { transposed, row, column, every_second };

// A matrix from another form: its transpose, a row or a column for all, every second element of longer rows.
Case form_case(DType dtype, Size size, Form form) {
  const std::int64_t side = size == Size::large ? 4096 : size == Size::small ? 180 : 7;
  const std::int64_t in_count = form == Form::row || form == Form::column ? side
                                : form == Form::every_second              ? 2 * side * side
                                                                          : side * side;
  Case made;
  const void* in = made.data.random(dtype, in_count);
  void* out = made.data.zeros(dtype, side * side);
  const Operand from = form == Form::transposed ? along(in, 1, side)
                       : form == Form::row      ? along(in, 0, 1)
                       : form == Form::column   ? along(in, 1, 0)
                                                : along(in, 2 * side, 2);
  made.run = launches(
      Copy{.in_dtype = dtype, .out_dtype = dtype, .loop = {2, {side, side}}, .out = along(out, side, 1), .in = from});
  made.passes = {{reads(in, dtype, in_count), writes(out, dtype, side * side)}};
  if (form == Form::transposed) {
    made.operation = {.name = "copy transposed", .dtype = "", .sizes = {side, side}, .in = {in}, .out = {out}};
  }
  return made;
}

Case compare_case(DType dtype, Size size, CompareOp op, const char* name) {
  const std::int64_t count = count_of(size);
  Case made;
  const void* a = made.data.random(dtype, count);
  const void* b = made.data.random(dtype, count, 2);
  void* out = made.data.zeros(DType::boolean, count);
  made.run = launches(Compare{
      .op = op, .dtype = dtype, .loop = {1, {count}}, .out = along(out, 1), .a = along(a, 1), .b = along(b, 1)});
  made.passes = {{reads(a, dtype, count), reads(b, dtype, count), writes(out, DType::boolean, count)}};
  made.operation = {.name = name, .dtype = "", .sizes = {count}, .in = {a, b}, .out = {out}};
  return made;
}

Case where_case(DType dtype, Size size) {
  const std::int64_t count = count_of(size);
  Case made;
  const std::uint8_t* condition = made.data.flags(count);
  const void* a = made.data.random(dtype, count);
  const void* b = made.data.random(dtype, count, 2);
  void* out = made.data.zeros(dtype, count);
  made.run = launches(Where{.item_size = static_cast<std::int64_t>(tandem::item_size(dtype)),
                            .loop = {1, {count}},
                            .out = along(out, 1),
                            .condition = along(condition, 1),
                            .a = along(a, 1),
                            .b = along(b, 1)});
  made.passes = {{reads(condition, DType::boolean, count), reads(a, dtype, count), reads(b, dtype, count),
                  writes(out, dtype, count)}};
  made.operation = {.name = "where", .dtype = "", .sizes = {count}, .in = {condition, a, b}, .out = {out}};
  return made;
}

// Rows of 256 elements by random index, as in an embedding, whose rows lie in memory, not in a cache.
Case index_select_case(DType dtype, Size size, bool add) {
  const std::int64_t columns = size == Size::tiny ? 10 : 256;
  const std::int64_t rows = rows_of(size, columns);
  Case made;
  const void* in = made.data.random(dtype, rows * columns);
  void* out = made.data.zeros(dtype, rows * columns);
  const std::int64_t* index = made.data.indices(rows, rows);
  if (add) {
    made.run = launches(IndexAdd{.dtype = dtype,
                                 .out = out,
                                 .in = in,
                                 .index = index,
                                 .outer = 1,
                                 .size = rows,
                                 .count = rows,
                                 .inner = columns});
    made.passes = {{reads(in, dtype, rows * columns), updates(out, dtype, rows * columns)}};
  } else {
    made.run = launches(IndexSelect{.out = out,
                                    .in = in,
                                    .index = index,
                                    .outer = 1,
                                    .size = rows,
                                    .count = rows,
                                    .inner_bytes = columns * static_cast<std::int64_t>(tandem::item_size(dtype))});
    made.passes = {{reads(in, dtype, rows * columns), writes(out, dtype, rows * columns)}};
  }
  made.operation = {.name = add ? "index_add" : "index_select",
                    .dtype = "",
                    .sizes = {rows, columns},
                    .in = {in, index},
                    .out = {out}};
  return made;
}

// An index for each element, within rows of 1000.
Case gather_case(DType dtype, Size size, bool add) {
  const std::int64_t columns = size == Size::tiny ? 10 : 1000;
  const std::int64_t rows = rows_of(size, columns);
  Case made;
  const void* in = made.data.random(dtype, rows * columns);
  void* out = made.data.zeros(dtype, rows * columns);
  const std::int64_t* index = made.data.indices(rows * columns, columns);
  if (add) {
    made.run = launches(ScatterAdd{.dtype = dtype,
                                   .dim_stride = 1,
                                   .dim_size = columns,
                                   .loop = {2, {rows, columns}},
                                   .out = along(out, columns, 0),
                                   .index = along(index, columns, 1),
                                   .in = along(in, columns, 1)});
    made.passes = {{reads(index, DType::i64, rows * columns), reads(in, dtype, rows * columns),
                    updates(out, dtype, rows * columns)}};
  } else {
    made.run = launches(Gather{.item_size = static_cast<std::int64_t>(tandem::item_size(dtype)),
                               .dim_stride = 1,
                               .dim_size = columns,
                               .loop = {2, {rows, columns}},
                               .out = along(out, columns, 1),
                               .index = along(index, columns, 1),
                               .in = along(in, columns, 0)});
    made.passes = {{reads(index, DType::i64, rows * columns), reads(in, dtype, rows * columns),
                    writes(out, dtype, rows * columns)}};
  }
  made.operation = {
      .name = add ? "scatter_add" : "gather", .dtype = "", .sizes = {rows, columns}, .in = {in, index}, .out = {out}};
  return made;
}

enum class Filling : std::uint8_t { fill, arange, linspace, uniform, normal, integer };

Case fill_case(DType dtype, Size size, Filling filling, const char* name) {
  const std::int64_t count = count_of(size);
  Case made;
  void* out = made.data.zeros(dtype, count);
  const auto random = [&](Distribution distribution, double low, double high) {
    return launches(RandomFill{.distribution = distribution,
                               .dtype = dtype,
                               .out = out,
                               .count = count,
                               .low = low,
                               .high = high,
                               .seed = 1,
                               .offset = 0,
                               .state = made.data.keep(StepState{})});
  };
  switch (filling) {
    case Filling::fill:
      made.run = launches(Fill{.dtype = dtype, .loop = {1, {count}}, .out = along(out, 1), .value = 0.5});
      break;
    case Filling::arange:
      made.run = launches(Arange{.dtype = dtype, .out = out, .count = count, .start = 0, .step = 1});
      break;
    case Filling::linspace:
      made.run = launches(Linspace{.dtype = dtype, .out = out, .count = count, .start = -1, .end = 1});
      break;
    case Filling::uniform: made.run = random(Distribution::uniform, 0, 1); break;
    case Filling::normal: made.run = random(Distribution::normal, 0, 1); break;
    case Filling::integer: made.run = random(Distribution::integer, 0, 10); break;
  }
  made.passes = {{writes(out, dtype, count)}};
  made.operation = {.name = name, .dtype = "", .sizes = {count}, .in = {}, .out = {out}};
  return made;
}

}  // namespace

void add_moves(Cases& cases) {
  const auto copies = [&](DType from, DType to) {
    cases.add("copy", "to " + std::string(tandem::name(to)), {from},
              [to](DType dtype, Size size) { return copy_case(dtype, size, to, Accumulate::no); });
  };
  for (const DType to : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64}) {
    copies(kF32, to);
  }
  for (const DType from : {DType::f64, DType::bf16, DType::f16}) {
    copies(from, kF32);
    copies(from, from);
  }
  cases.add("copy", "accumulate", kFloats,
            [](DType dtype, Size size) { return copy_case(dtype, size, dtype, Accumulate::yes); });
  const std::pair<Form, const char*> forms[] = {{Form::transposed, "transposed"},
                                                {Form::row, "a row for all"},
                                                {Form::column, "a column for all"},
                                                {Form::every_second, "every second"}};
  for (const auto& [form, name] : forms) {
    cases.add("copy", name, {DType::f32, DType::f64, DType::bf16},
              [form = form](DType dtype, Size size) { return form_case(dtype, size, form); });
  }
  const std::pair<CompareOp, const char*> comparisons[] = {
      {CompareOp::eq, "eq"}, {CompareOp::lt, "lt"}, {CompareOp::ge, "ge"}, {CompareOp::logical_and, "logical_and"}};
  for (const auto& [op, name] : comparisons) {
    cases.add("compare", name, op == CompareOp::lt ? kFloats : std::vector<DType>{kF32},
              [op = op, name = name](DType dtype, Size size) { return compare_case(dtype, size, op, name); });
  }
  cases.add("compare", "where", kFloats, where_case);
  cases.add("index", "index_select", kFloats,
            [](DType dtype, Size size) { return index_select_case(dtype, size, false); });
  cases.add("index", "index_add", kFloats, [](DType dtype, Size size) { return index_select_case(dtype, size, true); });
  cases.add("gather", "gather", kFloats, [](DType dtype, Size size) { return gather_case(dtype, size, false); });
  cases.add("gather", "scatter_add", kFloats, [](DType dtype, Size size) { return gather_case(dtype, size, true); });
  const auto fills = [&](const char* family, Filling filling, const char* name) {
    cases.add(family, name, kFloats, [=](DType dtype, Size size) { return fill_case(dtype, size, filling, name); });
  };
  fills("fill", Filling::fill, "fill");
  fills("fill", Filling::arange, "arange");
  fills("fill", Filling::linspace, "linspace");
  fills("random", Filling::uniform, "uniform");
  fills("random", Filling::normal, "normal");
  fills("random", Filling::integer, "integer");
}

}  // namespace bench::kernel
