#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tandem/core/float16.h>

#include "clique.h"

// Computes like NCCL: two values at a time, each result rounded to the type. An average is a sum of values that were
// multiplied by 1/n first.

namespace emulated_nccl::detail {

namespace {

template <class T>
T combined(ncclRedOp_t op, T a, T b) {
  using C = tandem::ComputeType<T>;
  const C x = static_cast<C>(a);
  const C y = static_cast<C>(b);
  switch (op) {
    case ncclProd: return static_cast<T>(x * y);
    case ncclMin: return static_cast<T>(x != x ? y : y != y || x < y ? x : y);
    case ncclMax: return static_cast<T>(x != x ? y : y != y || x > y ? x : y);
    default: return static_cast<T>(x + y);
  }
}

template <class T>
T scaled(ncclRedOp_t op, T value, std::size_t ranks) {
  using C = tandem::ComputeType<T>;
  if constexpr (std::is_floating_point_v<C>) {
    return op == ncclAvg ? static_cast<T>(static_cast<C>(value) * (C(1) / static_cast<C>(ranks))) : value;
  }
  return value;
}

// Reduces elements [first, first + count) of all ranks.
template <class T>
std::vector<std::byte> reduced(const Meeting& meeting, std::size_t first, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  T* sums = reinterpret_cast<T*>(bytes.data());
  const std::size_t ranks = meeting.entries.size();
  for (std::size_t r = 0; r < ranks; ++r) {
    const T* values = static_cast<const T*>(meeting.entries[r].in) + first;
    for (std::size_t i = 0; i < count; ++i) {
      const T value = scaled(meeting.op, values[i], ranks);
      sums[i] = r == 0 ? value : combined(meeting.op, sums[i], value);
    }
  }
  return bytes;
}

std::vector<std::byte> reduced_as(const Meeting& meeting, std::size_t first, std::size_t count) {
  switch (meeting.type) {
    case ncclFloat32: return reduced<float>(meeting, first, count);
    case ncclFloat64: return reduced<double>(meeting, first, count);
    case ncclFloat16: return reduced<tandem::Float16>(meeting, first, count);
    case ncclBfloat16: return reduced<tandem::BFloat16>(meeting, first, count);
    case ncclInt64: return reduced<std::uint64_t>(meeting, first, count);
    case ncclInt32: return reduced<std::uint32_t>(meeting, first, count);
    default: return reduced<std::uint8_t>(meeting, first, count);
  }
}

// Sums of signed numbers wrap around like unsigned ones, but minima and maxima need the sign.
std::vector<std::byte> reduced_signed(const Meeting& meeting, std::size_t first, std::size_t count) {
  const bool extreme = meeting.op == ncclMin || meeting.op == ncclMax;
  if (extreme && meeting.type == ncclInt64) {
    return reduced<std::int64_t>(meeting, first, count);
  }
  if (extreme && meeting.type == ncclInt32) {
    return reduced<std::int32_t>(meeting, first, count);
  }
  return reduced_as(meeting, first, count);
}

void move_parts(Meeting& meeting) {
  for (std::size_t to = 0; to < meeting.entries.size(); ++to) {
    for (const Part& receive : meeting.entries[to].parts) {
      if (receive.sends) {
        continue;
      }
      for (Part& send : meeting.entries[static_cast<std::size_t>(receive.peer)].parts) {
        if (send.sends && !send.done && send.peer == static_cast<int>(to)) {
          std::memmove(receive.to, send.from, receive.count * size_of(meeting.type));
          send.done = true;
          break;
        }
      }
    }
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
  }
}

void carry_out(Meeting& meeting) {
  std::vector<Entry>& entries = meeting.entries;
  const std::size_t count = entries.front().count;
  const std::size_t bytes = count * size_of(meeting.type);
  const auto root = static_cast<std::size_t>(meeting.root);
  switch (meeting.kind) {
    case Kind::all_reduce:
    case Kind::reduce: {
      const std::vector<std::byte> sums = reduced_signed(meeting, 0, count);
      for (std::size_t r = 0; r < entries.size(); ++r) {
        if (meeting.kind == Kind::all_reduce || r == root) {
          std::memcpy(entries[r].out, sums.data(), bytes);
        }
      }
      return;
    }
    case Kind::reduce_scatter: {
      const std::vector<std::byte> sums = reduced_signed(meeting, 0, count * entries.size());
      for (std::size_t r = 0; r < entries.size(); ++r) {
        std::memcpy(entries[r].out, sums.data() + r * bytes, bytes);
      }
      return;
    }
    case Kind::broadcast:
      for (Entry& entry : entries) {
        std::memmove(entry.out, entries[root].in, bytes);
      }
      return;
    case Kind::all_gather:
      for (const Entry& to : entries) {
        for (std::size_t r = 0; r < entries.size(); ++r) {
          std::memmove(static_cast<std::byte*>(to.out) + r * bytes, entries[r].in, bytes);
        }
      }
      return;
    case Kind::parts: return move_parts(meeting);
  }
}

}  // namespace emulated_nccl::detail
