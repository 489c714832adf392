#include "kernel/case.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/math.h>

namespace bench::kernel {

namespace {

constexpr std::int64_t kPattern = 65521;  // random numbers repeat after so many: a prime, so rows of a matrix differ

template <class T>
void repeat(T* to, std::int64_t count) {
  for (std::int64_t done = std::min(count, kPattern); done < count;) {
    const std::int64_t next = std::min(done, count - done);
    std::memcpy(to + done, to, static_cast<std::size_t>(next) * sizeof(T));
    done += next;
  }
}

template <class T, class Draw>
void fill(T* to, std::int64_t count, Draw&& draw) {
  std::mt19937 generator(20);
  for (std::int64_t i = 0; i < std::min(count, kPattern); ++i) {
    to[i] = draw(generator);
  }
  repeat(to, count);
}

}  // namespace

void* Data::allocate(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  void* memory = std::aligned_alloc(kLine, (bytes + 2 * kLine - 1) / kLine * kLine);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  others_.emplace_back(memory, std::free);
  return memory;
}

void* Data::random(DType dtype, std::int64_t count, double scale, double shift) {
  void* memory = allocate(static_cast<std::size_t>(count) * tandem::item_size(dtype));
  tandem::core::dispatch_any(dtype, [&]<class T>() {
    std::uniform_real_distribution<double> between(-scale, scale);
    fill(static_cast<T*>(memory), count,
         [&](std::mt19937& generator) { return tandem::kernels::convert<T>(between(generator) + shift); });
  });
  return memory;
}

void* Data::zeros(DType dtype, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * tandem::item_size(dtype);
  return std::memset(allocate(bytes), 0, bytes);
}

std::int64_t* Data::indices(std::int64_t count, std::int64_t limit) {
  auto* memory = static_cast<std::int64_t*>(allocate(static_cast<std::size_t>(count) * sizeof(std::int64_t)));
  std::mt19937_64 generator(21);
  std::generate_n(memory, count,
                  [&] { return static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(limit)); });
  return memory;
}

std::uint8_t* Data::flags(std::int64_t count) {
  auto* memory = static_cast<std::uint8_t*>(allocate(static_cast<std::size_t>(count)));
  fill(memory, count, [](std::mt19937& generator) { return static_cast<std::uint8_t>(generator() & 1); });
  return memory;
}

void Cases::add(const std::string& family, const std::string& name, const std::vector<DType>& dtypes,
                std::function<Case(DType, Size)> make, const std::vector<Size>& sizes) {
  for (const DType dtype : dtypes) {
    for (const Size size : sizes) {
      entries_.push_back({family, name, dtype, size, make});
    }
  }
}

}  // namespace bench::kernel
