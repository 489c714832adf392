// Compiled once per instruction set. Do not call functions of headers here: the linker might keep the copy of an
// instruction set that the machine does not have.
#include "kernel/floor_loops.h"

namespace bench::kernel::TANDEM_ISA {

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
using Floats = float __attribute__((vector_size(kBytes)));
using Doubles = double __attribute__((vector_size(kBytes)));

// The barriers keep the compiler from leaving out loads and stores whose values nobody uses.
[[gnu::always_inline]] inline void load_bytes(const char* from, std::int64_t bytes) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < bytes; i += kBytes) {
    const Floats value = *reinterpret_cast<const Floats*>(from + i);
    asm volatile("" : : "x"(value));
  }
}
[[gnu::always_inline]] inline void store_bytes(char* to, std::int64_t bytes) {
  Floats zero{};
  asm volatile("" : "+x"(zero));
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < bytes; i += kBytes) {
    *reinterpret_cast<Floats*>(to + i) = zero;
  }
  asm volatile("" : : : "memory");
}
[[gnu::always_inline]] inline void update_bytes(char* to, std::int64_t bytes) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < bytes; i += kBytes) {
    Floats value = *reinterpret_cast<Floats*>(to + i);
    asm volatile("" : "+x"(value));
    *reinterpret_cast<Floats*>(to + i) = value;
  }
  asm volatile("" : : : "memory");
}

void walk_parts(const Stream* streams, const std::int64_t* widths, int count, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t width = widths[i];
      char* data = static_cast<char*>(streams[i].data) + step * width;
      switch (streams[i].access) {
        case Stream::read: load_bytes(data, width); break;
        case Stream::write: store_bytes(data, width); break;
        case Stream::update: update_bytes(data, width); break;
      }
    }
  }
}

// Streams of equal length, a cache line of each at a time: first the ones to read, then to write, then to update.
template <int kReads, int kWrites, int kUpdates>
void walk_lines(const Stream* streams, std::int64_t bytes) {
  constexpr int kLine = 64;
  char* data[kReads + kWrites + kUpdates];
#pragma GCC unroll 8
  for (int i = 0; i < kReads + kWrites + kUpdates; ++i) {
    data[i] = static_cast<char*>(streams[i].data);
  }
  for (std::int64_t at = 0; at < bytes; at += kLine) {
#pragma GCC unroll 8
    for (int i = 0; i < kReads; ++i) {
      load_bytes(data[i] + at, kLine);
    }
#pragma GCC unroll 8
    for (int i = kReads; i < kReads + kWrites; ++i) {
      store_bytes(data[i] + at, kLine);
    }
#pragma GCC unroll 8
    for (int i = kReads + kWrites; i < kReads + kWrites + kUpdates; ++i) {
      update_bytes(data[i] + at, kLine);
    }
  }
}

void walk(const Stream* streams, const std::int64_t* widths, int count, std::int64_t steps) {
  int of_access[3] = {};
  bool equal = true;
  for (int i = 0; i < count; ++i) {
    ++of_access[streams[i].access];
    equal = equal && widths[i] == widths[0] && (i == 0 || streams[i - 1].access <= streams[i].access);
  }
  const std::int64_t bytes = steps * widths[0];
  switch (equal ? 100 * of_access[0] + 10 * of_access[1] + of_access[2] : -1) {
    case 100: return walk_lines<1, 0, 0>(streams, bytes);
    case 200: return walk_lines<2, 0, 0>(streams, bytes);
    case 10: return walk_lines<0, 1, 0>(streams, bytes);
    case 110: return walk_lines<1, 1, 0>(streams, bytes);
    case 210: return walk_lines<2, 1, 0>(streams, bytes);
    case 310: return walk_lines<3, 1, 0>(streams, bytes);
    case 220: return walk_lines<2, 2, 0>(streams, bytes);
    case 440: return walk_lines<4, 4, 0>(streams, bytes);
    case 1: return walk_lines<0, 0, 1>(streams, bytes);
    case 101: return walk_lines<1, 0, 1>(streams, bytes);
    case 102: return walk_lines<1, 0, 2>(streams, bytes);
    case 103: return walk_lines<1, 0, 3>(streams, bytes);
    case 104: return walk_lines<1, 0, 4>(streams, bytes);
    default: return walk_parts(streams, widths, count, steps);
  }
}

// Twelve sums hide the latency of a multiply-add on every machine that issues two of them per cycle. The compiler must
// not know that they are equal, or it would compute one of them.
template <class V>
[[gnu::always_inline]] inline double multiply_add(std::int64_t rounds, V factor) {
  constexpr int kSums = 12;
  V sums[kSums] = {};
  V addend = factor;
  asm volatile("" : "+x"(factor), "+x"(addend));
#pragma GCC unroll 12
  for (int k = 0; k < kSums; ++k) {
    asm volatile("" : "+x"(sums[k]));
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums; ++k) {
      sums[k] = sums[k] * factor + addend;
    }
  }
#pragma GCC unroll 12
  for (int k = 0; k < kSums; ++k) {
    asm volatile("" : : "x"(sums[k]));
  }
  return 2.0 * kSums * static_cast<double>(sizeof(V) / sizeof(factor[0]));
}

double multiply_add_f32(std::int64_t rounds) { return multiply_add(rounds, Floats{} + 0.5F); }
double multiply_add_f64(std::int64_t rounds) { return multiply_add(rounds, Doubles{} + 0.5); }

}  // namespace

extern const FloorLoops kLoops{walk, multiply_add_f32, multiply_add_f64};

}  // namespace bench::kernel::TANDEM_ISA
