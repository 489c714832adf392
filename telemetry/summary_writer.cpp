#include <tandem/telemetry/summary_writer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/file.h>
#include <tandem/core/host_name.h>

namespace tandem::inline v0::telemetry {

namespace {

// CRC-32C (Castagnoli; RFC 3720, B.4), whose bits are reflected.
constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    }
    table[byte] = crc;
  }
  return table;
}();

// As TensorFlow's records have it, so that a checksum of data that contain checksums stays a good one.
std::uint32_t masked_crc(std::string_view data) {
  std::uint32_t crc = ~0U;
  for (const char byte : data) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return std::rotr(~crc, 15) + 0xa282ead8U;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

std::string record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) + little_endian(masked_crc(data));
}

// A message in the wire format of protocol buffers.
class Message {
 public:
  Message& add(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& add(int field, double value) {
    key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& add(int field, float value) {
    key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& add(int field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    bytes_ += bytes;
    return *this;
  }
  Message& add(int field, const Message& message) { return add(field, std::string_view(message.bytes_)); }
  Message& add(int field, const std::vector<double>& values) {
    std::string packed;
    for (const double value : values) {
      packed += little_endian(std::bit_cast<std::uint64_t>(value));
    }
    return add(field, std::string_view(packed));
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Fields of TensorFlow's messages: Event 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log;
// SessionLog 1 status; Summary 1 value; Value 1 tag, 2 simple_value, 5 histo, 8 tensor, 9 metadata;
// SummaryMetadata 1 plugin_data; PluginData 1 plugin_name; TensorProto 1 dtype, 2 tensor_shape, 8 string_val;
// HistogramProto 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket.
constexpr std::int64_t kSessionStart = 1;
constexpr std::int64_t kStringType = 7;

Message event() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Message().add(1, std::chrono::duration<double>(now).count());
}

// The upper limits of a histogram's buckets: 0, and powers of 1.1 on both sides of it.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) {
      positive.push_back(limit);
    }
    std::vector<double> all;
    std::transform(positive.rbegin(), positive.rend(), std::back_inserter(all), std::negate());
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

// Buckets without values at both ends are left out.
Message histogram_of(std::span<const double> values) {
  const std::vector<double>& limits = bucket_limits();
  std::vector<double> counts(limits.size());
  double sum = 0;
  double squares = 0;
  double count = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double value : values) {
    if (std::isfinite(value)) {
      counts[static_cast<std::size_t>(std::ranges::lower_bound(limits, value) - limits.begin())] += 1;
      sum += value;
      squares += value * value;
      count += 1;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  const auto is_used = [](double in_bucket) { return in_bucket > 0; };
  const auto first = std::ranges::find_if(counts, is_used);
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_used).base();
  const auto limit = [&](auto bucket) { return limits.begin() + (bucket - counts.begin()); };
  return Message()
      .add(1, least)
      .add(2, most)
      .add(3, count)
      .add(4, sum)
      .add(5, squares)
      .add(6, std::vector<double>(limit(first), limit(end)))
      .add(7, std::vector<double>(first, end));
}

std::string name_of_file() {
  static std::atomic<int> files{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("events.out.tfevents.{}.{}.{}.{}", std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                     core::host_name(), ::getpid(), files++);
}

}  // namespace

struct SummaryWriter::Impl {
  std::string path;
  core::Descriptor file{};
  off_t bytes = 0;

  void write(const Message& message) {
    const std::string data = record(message.bytes());
    if (!core::write_all(file.get(), data)) {
      const int error = errno;
      // A full disk may take half a record. Truncating needs no space. If it fails too, report the first error.
      [[maybe_unused]] const int cut = ::ftruncate(file.get(), bytes);
      core::fail_io("write", path, error, data.size());
    }
    bytes += static_cast<off_t>(data.size());
  }
  void write(std::int64_t step, const Message& value) { write(event().add(2, step).add(5, Message().add(1, value))); }
};

SummaryWriter::SummaryWriter(const std::string& log_dir) : impl_(std::make_unique<Impl>()) {
  std::error_code error;
  std::filesystem::create_directories(log_dir, error);
  if (error) {
    core::fail_io("create the folder", log_dir, error.value());
  }
  impl_->path = log_dir + "/" + name_of_file();
  impl_->file = core::open_regular("create", impl_->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
  impl_->write(event().add(3, std::string_view("brain.Event:2")));
}

SummaryWriter::~SummaryWriter() = default;
SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&&) noexcept = default;

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t global_step) {
  impl_->write(global_step, Message().add(1, tag).add(2, static_cast<float>(value)));
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const double> values, std::int64_t global_step) {
  if (std::ranges::any_of(values, [](double value) { return std::isfinite(value); })) {
    impl_->write(global_step, Message().add(1, tag).add(5, histogram_of(values)));
  }
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t global_step) {
  const Message shape = Message().add(2, Message().add(1, std::int64_t{1}));
  const Message tensor = Message().add(1, kStringType).add(2, shape).add(8, text);
  const Message metadata = Message().add(1, Message().add(1, std::string_view("text")));
  impl_->write(global_step, Message().add(1, std::string(tag) + "/text_summary").add(8, tensor).add(9, metadata));
}

void SummaryWriter::restart_at(std::int64_t global_step) {
  impl_->write(event().add(2, global_step).add(7, Message().add(1, kSessionStart)));
}

const std::string& SummaryWriter::path() const noexcept { return impl_->path; }

}  // namespace tandem::inline v0::telemetry
