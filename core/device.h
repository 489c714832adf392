#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// The kinds of devices.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// Where a tensor lives. `cuda:k` is a GPU. `cpu:k` is a *logical CPU device*: the same memory, treated as another
/// device, so that every multi-device path runs and is tested anywhere. Values on different devices never mix in one
/// op; `.to(device)` copies.
struct Device {
  DeviceType type = DeviceType::cpu;  // cpu or cuda
  std::int16_t index = 0;             // which of them, from 0

  constexpr Device() noexcept = default;
  /// An index that cannot be held becomes -1, which no device has: it must not wrap around to another one.
  constexpr Device(DeviceType t, int i) noexcept
      : type(t), index(i >= 0 && i <= INT16_MAX ? static_cast<std::int16_t>(i) : std::int16_t{-1}) {}
  /// "cpu", "cpu:1", "cuda", "cuda:0"; throws DeviceError for any other text.
  TANDEM_API Device(std::string_view text);
  /// The same.
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(std::nullptr_t) = delete;
  /// The same.
  Device(const std::string& text) : Device(std::string_view(text)) {}
  /// An integer is a GPU ordinal, as in PyTorch.
  constexpr Device(int cuda_index) noexcept : Device(DeviceType::cuda, cuda_index) {}
  Device(bool) = delete;

  friend constexpr bool operator==(const Device&, const Device&) noexcept = default;
};

/// "cpu:0", "cuda:1". Index 0 is written out too: errors are about which one.
TANDEM_API std::string to_string(Device device);
/// Writes to_string(device).
TANDEM_API std::ostream& operator<<(std::ostream& out, Device device);

/// Number of logical CPU devices, fixed by whichever comes first: the first use of a device beyond cpu:0, or a call
/// of this function. Taken from TANDEM_CPU_DEVICES (1 to 64), else 8.
TANDEM_API int cpu_device_count();

/// Throws DeviceError when a tensor cannot be placed there on this machine in this build.
TANDEM_API void require_available(Device device);

}  // namespace tandem::inline v0
