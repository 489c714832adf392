#include <tandem/kernels/cpu/isa/vector_math.h>
#include <tandem/kernels/cpu/softmax_rows.h>

// Sums of a row's exponentials keep nearly twice the digits of a float. Among 10^5 classes a sum of floats would lose
// three digits, and the loss of a row that is right with certainty is the logarithm of a sum just above 1.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Sums numbers between 0 and 1. The sum starts at 1, so it is never the smaller summand, and the part that an addition
// rounds away is known exactly (Dekker, 1971).
class SumOfPowers {
 public:
  TANDEM_SIMD void add(Vec power) {
    const Vec next = sum_ + power;
    rest_ = rest_ + (power - (next - sum_));
    sum_ = next;
  }
  TANDEM_SIMD double total() const {
    Doubles all;
    all.add(sum_ - broadcast(1));  // exact while the sum is below 2^24
    all.add(rest_);
    return all.total();
  }
  // These give the sum lane by lane.
  TANDEM_SIMD Vec lanes() const { return (sum_ - broadcast(1)) + rest_; }
  TANDEM_SIMD Vec rest_of_lanes() const { return rest_ - (lanes() - (sum_ - broadcast(1))); }

 private:
  Vec sum_ = broadcast(1);
  Vec rest_ = Vec{};
};

TANDEM_SIMD float highest_of(const float* x, std::int64_t size) {
  const Vec least = broadcast(-kInfinity);
  Vec highest[4] = {least, least, least, least};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      highest[k] = max(highest[k], load(x + i + k * kLanes));
    }
  }
  for (; i + kLanes <= size; i += kLanes) {
    highest[0] = max(highest[0], load(x + i));
  }
  if (i < size) {
    highest[1] = max(highest[1], first_of(load(x + i, first(size - i)), size - i, least));
  }
  return largest_lane(max(max(highest[0], highest[1]), max(highest[2], highest[3])));
}

// Sums exp(x - highest). visit(i, count, power) sees each register of powers, of which the first `count` lanes are part
// of the row.
template <class Visit>
TANDEM_SIMD double sum_of_powers(const float* x, std::int64_t size, float highest, Visit&& visit) {
  const Vec all = broadcast(highest);
  const auto last = [&](std::int64_t i) __attribute__((always_inline)) {
    const Vec power = first_of(exp_below_one(load(x + i, first(size - i)) - all), size - i, Vec{});
    visit(i, size - i, power);
    return power;
  };
  if (size <= kLanes) {
    Doubles sum;
    sum.add(last(0));
    return sum.total();
  }
  SumOfPowers sum;
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Vec power = exp_below_one(load(x + i) - all);
    visit(i, std::int64_t{kLanes}, power);
    sum.add(power);
  }
  if (i < size) {
    sum.add(last(i));
  }
  return sum.total();
}

struct Ignore {
  TANDEM_SIMD void operator()(std::int64_t, std::int64_t, Vec) const {}
  TANDEM_SIMD void finish(double) const {}
};

struct RowSum {
  float highest;
  double sum;
};

// Sums a row that fits in one register; visit() sees its powers. Lanes past the end are -inf, whose power is 0.
template <class Visit>
TANDEM_SIMD RowSum sum_of_short_row(const float* x, std::int64_t size, Visit&& visit) {
  const Vec row = first_of(load(x, first(size)), size, broadcast(-kInfinity));
  const float highest = largest_lane(row);
  const Vec power = exp_below_one(row - broadcast(highest));
  visit(std::int64_t{0}, size, power);
  Doubles sum;
  sum.add(power);
  return {highest, sum.total()};
}

template <class Visit>
TANDEM_SIMD RowSum sum_of_long_row(const float* x, std::int64_t size, Visit&& visit) {
  const float highest = highest_of(x, size);
  return {highest, sum_of_powers(x, size, highest, visit)};
}

struct Pair {
  float high, low;
};

TANDEM_SIMD Pair pair_of(double value) {
  const auto high = static_cast<float>(value);
  return {high, static_cast<float>(value - static_cast<double>(high))};
}

TANDEM_SIMD void write(float* out, std::int64_t count, Vec value, Accumulate accumulate) {
  if (count >= kLanes) {
    store(out, accumulate == Accumulate::yes ? load(out) + value : value);
  } else {
    const Mask mask = first(count);
    store(out, accumulate == Accumulate::yes ? load(out, mask) + value : value, mask);
  }
}

// Calls body(i, count, elements) for each register along a row, with its elements of x.
template <class Body>
TANDEM_SIMD void for_each_register(const float* x, std::int64_t size, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    body(i, std::int64_t{kLanes}, load(x + i));
  }
  if (i < size) {
    body(i, size - i, load(x + i, first(size - i)));
  }
}

}  // namespace

namespace {

// Takes the logarithms of as many rows at once as a register has lanes. visitor_of(row) sees the row's powers, then
// their sum.
template <class VisitorOf>
TANDEM_SIMD void normalize(const float* logits, std::int64_t rows, std::int64_t classes, Normalizer<float>* normalizer,
                           VisitorOf&& visitor_of) {
  for (std::int64_t begin = 0; begin < rows; begin += kLanes) {
    const std::int64_t count = rows - begin < kLanes ? rows - begin : kLanes;
    float high[kLanes] = {};
    float low[kLanes] = {};
    for (std::int64_t k = 0; k < count; ++k) {
      const float* x = logits + (begin + k) * classes;
      auto visitor = visitor_of(begin + k);
      const RowSum row =
          classes <= kLanes ? sum_of_short_row(x, classes, visitor) : sum_of_long_row(x, classes, visitor);
      visitor.finish(row.sum);
      const Pair sum = pair_of(row.sum);
      normalizer[begin + k].highest = row.highest;
      high[k] = sum.high;
      low[k] = sum.low;
    }
    store(high, log_of_pair(load(high), load(low)));
    for (std::int64_t k = 0; k < count; ++k) {
      normalizer[begin + k].log_sum = high[k];
    }
  }
}

// Writes a row's gradient: (power / sum - [c == own]) * factor.
class RowGradient {
 public:
  TANDEM_SIMD RowGradient(const ClassRows& rows, std::int64_t row)
      : out_(rows.gradient + row * rows.classes),
        classes_(rows.classes),
        own_(rows.indices[row]),
        factor_(rows.factor),
        ignored_(own_ == rows.ignore_index) {}

  TANDEM_SIMD void operator()(std::int64_t i, std::int64_t count, Vec power) {
    last_ = power;
    if (classes_ > kLanes) {
      write(out_ + i, count, power, Accumulate::no);
    }
  }
  TANDEM_SIMD void finish(double sum) const {
    const auto part = static_cast<float>(1 / sum);
    if (ignored_) {
      for_each_register(out_, classes_, [&](std::int64_t i, std::int64_t count, Vec) __attribute__((always_inline)) {
        write(out_ + i, count, Vec{}, Accumulate::no);
      });
    } else if (classes_ <= kLanes) {
      const Vec p = last_ * broadcast(part);
      const Vec rest = p - (lane_numbers() == static_cast<std::int32_t>(own_) ? broadcast(1) : Vec{});
      write(out_, classes_, rest * broadcast(factor_), Accumulate::no);
    } else {
      const float own = (out_[own_] * part - 1) * factor_;
      const Vec scale = broadcast(part * factor_);
      for_each_register(out_, classes_, [&](std::int64_t i, std::int64_t count, Vec p) __attribute__((always_inline)) {
        write(out_ + i, count, p * scale, Accumulate::no);
      });
      out_[own_] = own;
    }
  }

 private:
  float* out_;
  std::int64_t classes_;
  std::int64_t own_;
  float factor_;
  bool ignored_;
  Vec last_ = Vec{};
};

}  // namespace

void normalize_rows(const float* logits, std::int64_t rows, std::int64_t classes, Normalizer<float>* normalizer) {
  normalize(logits, rows, classes, normalizer, [](std::int64_t) { return Ignore(); });
}

void normalize_with_gradient(const ClassRows& arguments) {
  const ClassRows rows = arguments;  // a copy that the stores below can't alias
  normalize(rows.logits, rows.rows, rows.classes, rows.normalizer,
            [&](std::int64_t row) { return RowGradient(rows, row); });
}

void class_gradient_row(const ClassGradientRow& arguments) {
  const ClassGradientRow row = arguments;  // a copy that the stores below can't alias
  const Vec highest = broadcast(row.by.highest);
  const Vec log_sum = broadcast(row.by.log_sum);
  const Vec factor = broadcast(row.factor);
  const auto fill = [&](Accumulate accumulate) __attribute__((always_inline)) {
    for_each_register(row.x, row.classes,
                      [&](std::int64_t i, std::int64_t count, Vec x) __attribute__((always_inline)) {
                        Vec value = exp_below_one(x - highest - log_sum);
                        const std::int64_t own = row.own - i;
                        if (own >= 0 && own < kLanes) {
                          value = value - (lane_numbers() == static_cast<std::int32_t>(own) ? broadcast(1) : Vec{});
                        }
                        write(row.out + i, count, value * factor, accumulate);
                      });
  };
  row.accumulate == Accumulate::yes ? fill(Accumulate::yes) : fill(Accumulate::no);
}

void softmax_row(const float* in, float* out, std::int64_t size, bool log) {
  const float highest = highest_of(in, size);
  if (log) {
    const Pair sum = pair_of(sum_of_powers(in, size, highest, Ignore()));
    const Vec log_sum = log_of_pair(broadcast(sum.high), broadcast(sum.low));
    for_each_register(in, size, [&](std::int64_t i, std::int64_t count, Vec x) __attribute__((always_inline)) {
      write(out + i, count, (x - broadcast(highest)) - log_sum, Accumulate::no);
    });
    return;
  }
  const double sum = sum_of_powers(in, size, highest,
                                   [&](std::int64_t i, std::int64_t count, Vec power) __attribute__((always_inline)) {
                                     write(out + i, count, power, Accumulate::no);
                                   });
  const Vec factor = broadcast(static_cast<float>(1 / sum));
  for_each_register(out, size, [&](std::int64_t i, std::int64_t count, Vec power) __attribute__((always_inline)) {
    write(out + i, count, power * factor, Accumulate::no);
  });
}

void softmax_grad_row(const float* grad, const float* y, float* out, std::int64_t size, bool log,
                      Accumulate accumulate) {
  Doubles total;
  for_each_register(grad, size, [&](std::int64_t i, std::int64_t count, Vec g) __attribute__((always_inline)) {
    total.add(log ? g : g * load(y + i, first(count)));
  });
  const Vec sum = broadcast(static_cast<float>(total.total()));
  for_each_register(grad, size, [&](std::int64_t i, std::int64_t count, Vec g) __attribute__((always_inline)) {
    const Vec of_y = load(y + i, first(count));
    write(out + i, count, log ? g - exp_below_one(of_y) * sum : of_y * (g - sum), accumulate);
  });
}

namespace {

// Columns beside each other. With several registers of them each row's lines are read in order; only one register may
// be cut.
template <int kRegisters>
class Columns {
 public:
  TANDEM_SIMD Columns(std::int64_t stride, std::int64_t count)
      : stride_(stride), mask_(first(count)), whole_(kRegisters > 1 || count == kLanes) {}

  TANDEM_SIMD Vec get(const float* from, std::int64_t row, int r) const {
    from += row * stride_ + r * kLanes;
    return whole_ ? load(from) : load(from, mask_);  // masks are slow with AVX2
  }
  // Fetches the line behind these columns: the processor does not fetch ahead where each line is in a page of its own.
  TANDEM_SIMD void fetch_next(const float* from, std::int64_t row, int r) const {
    __builtin_prefetch(from + row * stride_ + (kRegisters + r) * kLanes);
  }
  TANDEM_SIMD void put(float* to, std::int64_t row, int r, Vec value) const {
    to += row * stride_ + r * kLanes;
    whole_ ? store(to, value) : store(to, value, mask_);
  }

 private:
  std::int64_t stride_;
  Mask mask_;
  bool whole_;
};

constexpr int kBeside = 4;  // registers of columns

// Calls body(row, r) for all registers of all rows.
template <int kRegisters, class Body>
TANDEM_SIMD void for_each_row(std::int64_t rows, Body&& body) {
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) {
      body(row, r);
    }
  }
}

template <int kRegisters>
TANDEM_SIMD void softmax_of_columns(const float* x, float* y, std::int64_t size, const Columns<kRegisters>& columns,
                                    bool log) {
  Vec highest[kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; ++r) {
    highest[r] = columns.get(x, 0, r);
  }
  for_each_row<kRegisters>(size, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    highest[r] = max(highest[r], columns.get(x, row, r));
    columns.fetch_next(x, row, r);
  });
  SumOfPowers sum[kRegisters];
  for_each_row<kRegisters>(size, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    const Vec power = exp_below_one(columns.get(x, row, r) - highest[r]);
    sum[r].add(power);
    if (!log) {
      columns.put(y, row, r, power);
    }
  });
  Vec by[kRegisters];  // subtracted or multiplied
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; ++r) {
    by[r] = log ? log_of_pair(sum[r].lanes(), sum[r].rest_of_lanes()) : broadcast(1) / sum[r].lanes();
  }
  for_each_row<kRegisters>(size, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    columns.put(y, row, r, log ? (columns.get(x, row, r) - highest[r]) - by[r] : columns.get(y, row, r) * by[r]);
  });
}

template <int kRegisters>
TANDEM_SIMD void softmax_grad_of_columns(const SoftmaxGradColumns& of, std::int64_t column,
                                         const Columns<kRegisters>& columns) {
  const float* const grad = of.grad + column;
  const float* const y = of.y + column;
  float* const out = of.out + column;
  Wide low[kRegisters] = {};
  Wide high[kRegisters] = {};
  for_each_row<kRegisters>(of.size, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    const Vec g = columns.get(grad, row, r);
    columns.fetch_next(grad, row, r);
    columns.fetch_next(y, row, r);
    const Vec term = of.log ? g : g * columns.get(y, row, r);
    low[r] = low[r] + low_half(term);
    high[r] = high[r] + high_half(term);
  });
  Vec sum[kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; ++r) {
    sum[r] = joined(low[r], high[r]);
  }
  for_each_row<kRegisters>(of.size, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    const Vec g = columns.get(grad, row, r);
    const Vec of_y = columns.get(y, row, r);
    const Vec value = of.log ? g - exp_below_one(of_y) * sum[r] : of_y * (g - sum[r]);
    columns.put(out, row, r, of.accumulate == Accumulate::yes ? columns.get(out, row, r) + value : value);
  });
}

}  // namespace

void softmax_columns(const float* in, float* out, std::int64_t size, std::int64_t stride, std::int64_t columns,
                     bool log) {
  std::int64_t column = 0;
  for (; column + kBeside * kLanes <= columns; column += kBeside * kLanes) {
    softmax_of_columns(in + column, out + column, size, Columns<kBeside>(stride, kLanes), log);
  }
  for (; column < columns; column += kLanes) {
    const std::int64_t count = columns - column < kLanes ? columns - column : kLanes;
    softmax_of_columns(in + column, out + column, size, Columns<1>(stride, count), log);
  }
}

void softmax_grad_columns(const SoftmaxGradColumns& arguments) {
  const SoftmaxGradColumns of = arguments;  // a copy that the stores below can't alias
  std::int64_t column = 0;
  for (; column + kBeside * kLanes <= of.columns; column += kBeside * kLanes) {
    softmax_grad_of_columns(of, column, Columns<kBeside>(of.stride, kLanes));
  }
  for (; column < of.columns; column += kLanes) {
    const std::int64_t count = of.columns - column < kLanes ? of.columns - column : kLanes;
    softmax_grad_of_columns(of, column, Columns<1>(of.stride, count));
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
