#include <tandem/core/device.h>

#include <ostream>

#include <charconv>
#include <cstdlib>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>

namespace tandem::inline v0 {

namespace {

constexpr int kDefaultCpuDevices = 8;
constexpr int kMaxCpuDevices = 64;

bool parse_int(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int read_cpu_device_count() {
  const char* text = std::getenv("TANDEM_CPU_DEVICES");
  if (text == nullptr) {
    return kDefaultCpuDevices;
  }
  int count = 0;
  check<ConfigError>(parse_int(text, count) && count >= 1 && count <= kMaxCpuDevices,
                     "TANDEM_CPU_DEVICES='{}': expected a number from 1 to {}", text, kMaxCpuDevices);
  return count;
}

// A hint for a rank that used its rank in the job as a device index on its host.
std::string hint_for_rank(Device device) {
  const char* rank = std::getenv("RANK");
  const char* local = std::getenv("LOCAL_RANK");
  if (rank == nullptr || local == nullptr || std::string_view(rank) == local ||
      std::string_view(rank) != std::to_string(device.index)) {
    return "";
  }
  return fmt::format(". This is rank {}, number {} on its host: devices are counted on each host, take LOCAL_RANK",
                     rank, local);
}

}  // namespace

Device::Device(std::string_view text) {
  constexpr std::size_t kExcerpt = 40;
  const auto colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  int ordinal = 0;
  const bool index_ok =
      colon == std::string_view::npos ||
      (!text.substr(colon + 1).starts_with('-') && parse_int(text.substr(colon + 1), ordinal) && ordinal <= INT16_MAX);
  check<DeviceError>((kind == "cpu" || kind == "cuda") && index_ok,
                     "device '{}{}' is not known; write 'cpu', 'cpu:1', 'cuda' or 'cuda:0'", text.substr(0, kExcerpt),
                     text.size() > kExcerpt ? "..." : "");
  type = kind == "cpu" ? DeviceType::cpu : DeviceType::cuda;
  index = static_cast<std::int16_t>(ordinal);
}

std::string to_string(Device device) {
  return fmt::format("{}:{}", device.type == DeviceType::cpu ? "cpu" : "cuda", device.index);
}

int cpu_device_count() {
  static const int count = read_cpu_device_count();
  return count;
}

void require_available(Device device) {
  if (device == Device()) {
    return;
  }
  if (device.type == DeviceType::cuda) {
    const int count = cuda::device_count();
    check<DeviceError>(count > 0, "device '{}': {}; use 'cpu' [TDM-E115]", to_string(device), cuda::why_unavailable());
    if (device.index < 0 || device.index >= count) {
      fail<DeviceError>("device '{}': there are {} GPUs, cuda:0 to cuda:{}{} [TDM-E115]", to_string(device), count,
                        count - 1, hint_for_rank(device));
    }
    return;
  }
  if (device.index < 0 || device.index >= cpu_device_count()) {
    fail<DeviceError>(
        "device '{}': there are {} logical CPU devices (cpu:0 to cpu:{}); set TANDEM_CPU_DEVICES for more{} [TDM-E115]",
        to_string(device), cpu_device_count(), cpu_device_count() - 1, hint_for_rank(device));
  }
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace tandem::inline v0
