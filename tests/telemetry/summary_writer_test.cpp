#include <tandem/telemetry/summary_writer.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/telemetry/run_folder.h>

#include "support/temp_dir.h"

namespace tandem {
namespace {

using telemetry::RunFolder;
using telemetry::SummaryWriter;
using test::read_text;
using test::TempDir;
using testing::ElementsAre;
using testing::IsEmpty;

// CRC-32C bit by bit, and its mask, as TensorFlow defines them.
std::uint32_t checksum(std::string_view data) {
  std::uint32_t crc = ~0U;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
    }
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// The records of a file, whose checksums are right.
std::vector<std::string> records_in(const std::string& path) {
  const std::string bytes = read_text(path);
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 8), checksum(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 12 + length), checksum(records.back()));
    at += 16 + length;
  }
  return records;
}

// A field of a protocol buffer: its number, and its bytes or its value.
struct ReadField {
  std::uint64_t number;
  std::string bytes;
  double value = 0;
};

std::vector<ReadField> fields_of(std::string_view message) {
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  };
  std::vector<ReadField> fields;
  while (at < message.size()) {
    const std::uint64_t key = varint();
    ReadField field{.number = key >> 3, .bytes = {}};
    if ((key & 7) == 0) {
      field.value = static_cast<double>(static_cast<std::int64_t>(varint()));
    } else if ((key & 7) == 1) {
      field.value = number_at<double>(message, at);
      at += 8;
    } else if ((key & 7) == 5) {
      field.value = number_at<float>(message, at);
      at += 4;
    } else {
      const std::uint64_t length = varint();
      field.bytes = message.substr(at, length);
      at += length;
    }
    fields.push_back(field);
  }
  return fields;
}

ReadField field_of(std::string_view message, std::uint64_t number) {
  for (const ReadField& field : fields_of(message)) {
    if (field.number == number) {
      return field;
    }
  }
  return {};
}

struct Scalar {
  std::string tag;
  double value;
  double step;
  friend bool operator==(const Scalar& a, const Scalar& b) {
    return a.tag == b.tag && a.step == b.step && (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value)));
  }
  friend void PrintTo(const Scalar& s, std::ostream* out) { *out << s.tag << " " << s.value << " at " << s.step; }
};

constexpr std::uint64_t kStep = 2;
constexpr std::uint64_t kVersion = 3;
constexpr std::uint64_t kSummary = 5;
constexpr std::uint64_t kSession = 7;

std::vector<Scalar> scalars_in(const std::string& path) {
  std::vector<Scalar> scalars;
  for (const std::string& event : records_in(path)) {
    if (const std::string summary = field_of(event, kSummary).bytes; !summary.empty()) {
      const std::string value = field_of(summary, 1).bytes;
      scalars.push_back({field_of(value, 1).bytes, field_of(value, 2).value, field_of(event, kStep).value});
    }
  }
  return scalars;
}

std::vector<std::string> event_files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

TEST(SummaryWriter, ScalarsAreRecordsWithChecksums) {
  const TempDir dir;
  SummaryWriter writer(dir.file("logs/run"));
  writer.add_scalar("loss", 0.5, 7);
  writer.add_scalar("loss", std::numeric_limits<double>::quiet_NaN(), std::int64_t{1} << 40);
  writer.add_scalar("a/b \u00fc", -1e30, 0);
  EXPECT_EQ(field_of(records_in(writer.path())[0], kVersion).bytes, "brain.Event:2");
  EXPECT_THAT(scalars_in(writer.path()),
              ElementsAre(Scalar{"loss", 0.5, 7}, Scalar{"loss", std::nan(""), std::ldexp(1.0, 40)},
                          Scalar{"a/b \u00fc", static_cast<double>(-1e30F), 0}));
}

TEST(SummaryWriter, HistogramsCountEachFiniteValueOnce) {
  const TempDir dir;
  SummaryWriter writer(dir.file("run"));
  const double infinity = std::numeric_limits<double>::infinity();
  writer.add_histogram("empty", {}, 0);
  writer.add_histogram("none", std::vector<double>{infinity, std::nan("")}, 0);
  const std::vector<double> values{0, 0, 1, -1, 1e-300, -1e300, 1e300, infinity, 2.5};
  writer.add_histogram("some", values, 3);
  const auto records = records_in(writer.path());
  ASSERT_EQ(records.size(), 2);
  const std::string value = field_of(field_of(records[1], kSummary).bytes, 1).bytes;
  const std::string histogram = field_of(value, 5).bytes;
  EXPECT_EQ(field_of(value, 1).bytes, "some");
  EXPECT_EQ(field_of(histogram, 1).value, -1e300);
  EXPECT_EQ(field_of(histogram, 2).value, 1e300);
  EXPECT_EQ(field_of(histogram, 3).value, 8);
  const std::string limits = field_of(histogram, 6).bytes;
  const std::string counts = field_of(histogram, 7).bytes;
  ASSERT_EQ(limits.size(), counts.size());
  double total = 0;
  for (std::size_t at = 0; at < counts.size(); at += 8) {
    total += number_at<double>(counts, at);
    if (at > 0) {
      EXPECT_LT(number_at<double>(limits, at - 8), number_at<double>(limits, at));
    }
  }
  EXPECT_EQ(total, 8);
}

TEST(SummaryWriter, TwoOfOneFolderHaveFilesOfTheirOwn) {
  const TempDir dir;
  const SummaryWriter one(dir.file("run"));
  const SummaryWriter other(dir.file("run"));
  EXPECT_NE(one.path(), other.path());
}

TEST(SummaryWriter, NamesAFolderThatCannotBe) { EXPECT_THROW(SummaryWriter("/proc/none"), IoError); }

TEST(RunFolder, TensorBoardGetsTheNumbersOfEachLine) {
  const TempDir dir;
  RunFolder folder({.path = dir.file("run")});
  folder.write_config({});
  EXPECT_THAT(event_files_in(folder.path()), IsEmpty());  // until there are metrics
  folder.append_metrics({{"epoch", std::int64_t{1}}, {"loss", 0.5}, {"note", std::string("text")}});
  folder.append_metrics({{"step", std::int64_t{40}}, {"epoch", std::int64_t{2}}, {"loss", 0.25}});
  folder.append_metrics({{"loss", 0.125}, {"best", true}});
  EXPECT_THAT(
      scalars_in(event_files_in(folder.path()).at(0)),
      ElementsAre(Scalar{"loss", 0.5, 1}, Scalar{"epoch", 2, 40}, Scalar{"loss", 0.25, 40}, Scalar{"loss", 0.125, 3}));
}

TEST(RunFolder, TensorBoardDropsWhatARunMakesAnew) {
  const TempDir dir;
  {
    RunFolder folder({.path = dir.file("run")});
    folder.append_metrics({{"epoch", std::int64_t{1}}, {"loss", 0.5}});
    folder.append_metrics({{"epoch", std::int64_t{2}}, {"loss", 0.4}});
  }
  RunFolder folder({.path = dir.file("run"), .reuse = true});
  folder.cut_metrics(1 + folder.metrics_bytes() / 2);
  folder.append_metrics({{"epoch", std::int64_t{2}}, {"loss", 0.3}});
  folder.append_metrics({{"epoch", std::int64_t{3}}, {"loss", 0.2}});
  const std::vector<std::string> files = event_files_in(folder.path());
  ASSERT_EQ(files.size(), 2);
  const auto records = records_in(files[1]);
  std::vector<double> restarts;
  for (const std::string& event : records) {
    if (const std::string session = field_of(event, kSession).bytes; !session.empty()) {
      EXPECT_EQ(field_of(session, 1).value, 1);  // START
      restarts.push_back(field_of(event, kStep).value);
    }
  }
  EXPECT_THAT(restarts, ElementsAre(2));
}

}  // namespace
}  // namespace tandem
