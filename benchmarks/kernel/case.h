#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

#include "kernel/floor_loops.h"
#include "kernel/peer.h"

// A case is one kernel on one size of data, with the least memory traffic that its result takes and, for a product, the
// number of operations.

namespace bench::kernel {

using tandem::Device;
using tandem::DType;
using tandem::kernels::Accumulate;
using tandem::kernels::Loop;
using tandem::kernels::Operand;

/// Sizes of data: `large` does not fit in any cache, `small` fits in the second-level or third-level cache, and `tiny`
/// only shows that a case runs.
enum class Size : std::uint8_t { tiny, small, large };

/// 64-byte aligned arrays that a case works on.
class Data {
 public:
  /// Values between -1 and 1 times `scale`, plus `shift`.
  void* random(DType dtype, std::int64_t count, double scale = 1, double shift = 0);
  void* zeros(DType dtype, std::int64_t count);
  /// Whole numbers in [0, limit), in random order.
  std::int64_t* indices(std::int64_t count, std::int64_t limit);
  /// Zeros and ones.
  std::uint8_t* flags(std::int64_t count);
  /// Keeps `value` as long as the arrays.
  template <class T>
  T* keep(T value) {
    auto kept = std::make_shared<T>(std::move(value));
    others_.push_back(kept);
    return kept.get();
  }

 private:
  void* allocate(std::size_t bytes);

  std::vector<std::shared_ptr<void>> others_;
};

/// A case holds the kernel to time and the memory that the kernel reads and writes.
struct Case {
  Data data;
  std::function<void()> run;
  std::vector<Pass> passes;  // of the roofline: memory that must be read or written
  double flops = 0;          // of the roofline: of products alone; other arithmetic is not counted
  Operation operation;       // for peers; without a name no peer is asked
};

/// A case that can be made.
struct Entry {
  std::string family;
  std::string name;
  DType dtype;
  Size size;
  std::function<Case(DType, Size)> make;
};

inline const std::vector<Size> kSizes{Size::tiny, Size::small, Size::large};

/// All cases, in the order of the table.
class Cases {
 public:
  /// Adds a case for each of `dtypes` and `sizes`.
  void add(const std::string& family, const std::string& name, const std::vector<DType>& dtypes,
           std::function<Case(DType, Size)> make, const std::vector<Size>& sizes = kSizes);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// One function for each file of cases.
void add_products(Cases& cases);
void add_fused(Cases& cases);    // products that take an optimiser's step along
void add_spatial(Cases& cases);  // convolutions, poolings
void add_pointwise(Cases& cases);
void add_rows(Cases& cases);        // softmax, norms
void add_reductions(Cases& cases);  // reductions, scans
void add_losses(Cases& cases);
void add_moves(Cases& cases);    // copies, indices, fills, comparisons
void add_updates(Cases& cases);  // optimisers, clipping, gradient scaling, dropout, combining

// ---- helpers for making cases ----

inline constexpr DType kF32 = DType::f32;
inline const std::vector<DType> kFloats{DType::f32, DType::f64, DType::bf16, DType::f16};

/// Elements of an element-wise case.
inline std::int64_t count_of(Size size) {
  return size == Size::large ? std::int64_t{1} << 24 : size == Size::small ? 32768 : 300;
}
/// Rows of `columns` elements of a case over rows.
inline std::int64_t rows_of(Size size, std::int64_t columns) {
  return size == Size::tiny ? 3 : count_of(size) / columns;
}

inline double bytes_of(DType dtype, std::int64_t count) {
  return static_cast<double>(count) * static_cast<double>(tandem::item_size(dtype));
}
inline Stream reads(const void* data, DType dtype, std::int64_t count) {
  return {const_cast<void*>(data), count * static_cast<std::int64_t>(tandem::item_size(dtype)), Stream::read};
}
inline Stream writes(void* data, DType dtype, std::int64_t count) {
  return {data, count * static_cast<std::int64_t>(tandem::item_size(dtype)), Stream::write};
}
inline Stream updates(void* data, DType dtype, std::int64_t count) {
  return {data, count * static_cast<std::int64_t>(tandem::item_size(dtype)), Stream::update};
}

/// An operand along a loop of one or two dimensions.
inline Operand along(const void* data, std::int64_t stride) { return {const_cast<void*>(data), {stride}}; }
inline Operand along(const void* data, std::int64_t outer, std::int64_t inner) {
  return {const_cast<void*>(data), {outer, inner}};
}

/// A function that launches these kernels in turn.
template <class... Kernels>
std::function<void()> launches(const Kernels&... kernels) {
  return [=] { (tandem::kernels::launch(tandem::kernels::context_for(Device()), kernels), ...); };
}

}  // namespace bench::kernel
