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

/// The place of a tensor's elements. `cuda:k` is a GPU. `cpu:k` is a *logical CPU device*: it shares the host's memory
/// but is treated as a separate device, so every multi-device path runs and is tested on any machine. An op never mixes
/// values on different devices; `.to(device)` copies them.
struct Device {
  DeviceType type = DeviceType::cpu;  // kind of device
  std::int16_t index = 0;             // ordinal among devices of this kind, from 0

  constexpr Device() noexcept = default;
  /// An index that does not fit becomes -1, which no device has. Wrapping around would silently select another device.
  constexpr Device(DeviceType t, int i) noexcept
      : type(t), index(i >= 0 && i <= INT16_MAX ? static_cast<std::int16_t>(i) : std::int16_t{-1}) {}
  /// "cpu", "cpu:1", "cuda", "cuda:0"; throws DeviceError for any other text.
  TANDEM_API Device(std::string_view text);
  /// Parses a device name, as the std::string_view constructor does.
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(std::nullptr_t) = delete;
  /// Parses a device name, as the std::string_view constructor does.
  Device(const std::string& text) : Device(std::string_view(text)) {}
  /// An integer is a GPU ordinal, as in PyTorch.
  constexpr Device(int cuda_index) noexcept : Device(DeviceType::cuda, cuda_index) {}
  Device(bool) = delete;

  friend constexpr bool operator==(const Device&, const Device&) noexcept = default;
};

/// "cpu:0", "cuda:1". Index 0 is written out as well, because error messages must say which device they mean.
TANDEM_API std::string to_string(Device device);
/// Writes to_string(device).
TANDEM_API std::ostream& operator<<(std::ostream& out, Device device);

/// Number of logical CPU devices, from TANDEM_CPU_DEVICES (1 to 64), or 8 if that is not set. The number is fixed by
/// the first use of a device beyond cpu:0 or the first call of this function.
TANDEM_API int cpu_device_count();

/// Throws DeviceError if this machine and this build cannot place a tensor on `device`.
TANDEM_API void require_available(Device device);

}  // namespace tandem::inline v0
