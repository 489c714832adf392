#include <tandem/parallel/rendezvous/frames.h>

#include <gtest/gtest.h>

#include "support/message.h"

namespace tandem::test {
namespace {

using parallel::Frame;
using parallel::FrameKind;
using parallel::kFrameHeader;

parallel::FrameHeader header_of(const std::string& bytes) {
  return parallel::decode_header(
      std::span<const std::uint8_t, kFrameHeader>(reinterpret_cast<const std::uint8_t*>(bytes.data()), kFrameHeader));
}

Frame decoded(const std::string& bytes) {
  const parallel::FrameHeader header = header_of(bytes);
  EXPECT_EQ(bytes.size(), kFrameHeader + header.body());
  return parallel::decode_body(header, std::string_view(bytes).substr(kFrameHeader));
}

TEST(Frames, AreReadAsTheyWereWritten) {
  for (const Frame& frame :
       {Frame{FrameKind::set, 0xfedcba98, "key", "value"}, Frame{FrameKind::set, 1, std::string(1024, 'k'), ""},
        Frame{FrameKind::add, 2, "n", parallel::encode_number(-5)}, Frame{FrameKind::beat, 0, {}, {}},
        Frame{FrameKind::verdict, 0, {}, "over"}}) {
    EXPECT_EQ(decoded(encode(frame)), frame);
  }
}

TEST(Frames, HaveOneFormOnTheWire) {
  EXPECT_EQ(parallel::encode({FrameKind::set, 0x01020304, "key", "new v"}),
            std::string("\x02\0\0\3\1\2\3\4\0\0\0\5", 12) + "keynew v");
}

TEST(Frames, LengthsAreCheckedBeforeAnythingIsRead) {
  const auto error_of = [](std::string bytes) {
    bytes.resize(kFrameHeader);
    return message_of<IoError>([&] { header_of(bytes); });
  };
  EXPECT_EQ(error_of(std::string("\0\0", 2)), "rendezvous: no frame starts with the bytes 0 0");
  EXPECT_EQ(error_of(std::string("\x80\0", 2)), "rendezvous: no frame starts with the bytes 128 0");
  EXPECT_EQ(error_of(std::string("\2\1", 2)), "rendezvous: no frame starts with the bytes 2 1");
  EXPECT_EQ(error_of(std::string("\2\0\0\1\0\0\0\0\xff\xff\xff\xff", 12)),
            "rendezvous: a frame of kind 2 has no lengths 1, 4294967295");
  EXPECT_EQ(error_of(std::string("\2\0\4\1", 4)), "rendezvous: a frame of kind 2 has no lengths 1025, 0");
  EXPECT_EQ(error_of(std::string("\2\0\0\0", 4)), "rendezvous: a frame of kind 2 has no lengths 0, 0");
  EXPECT_EQ(error_of(std::string("\3\0\0\1\0\0\0\0\0\0\0\1", 12)), "rendezvous: a frame of kind 3 has no lengths 1, 1");
  EXPECT_EQ(error_of(std::string("\5\0\0\1\0\0\0\0\0\0\0\7", 12)), "rendezvous: a frame of kind 5 has no lengths 1, 7");
  EXPECT_EQ(error_of(std::string("\x20\0\0\0\0\0\0\0\0\0\0\1", 12)),
            "rendezvous: a frame of kind 32 has no lengths 0, 1");
}

TEST(Frames, NumbersHaveEightBytes) {
  for (const std::int64_t number : {INT64_C(0), INT64_C(-1), INT64_MAX, INT64_MIN, INT64_C(0x0102030405060708)}) {
    EXPECT_EQ(parallel::decode_number(parallel::encode_number(number)), number);
  }
  EXPECT_EQ(parallel::encode_number(0x0102030405060708), "\1\2\3\4\5\6\7\x08");
}

TEST(Hello, SaysWhoComes) {
  const parallel::Hello hello{3, 4711, 250, "node7"};
  EXPECT_EQ(parallel::decode_hello(decoded(encode(parallel::encode_hello(hello)))), hello);
  EXPECT_EQ(parallel::decode_hello(parallel::encode_hello({-1, 1, 1, std::string(300, 'h')})).host.size(), 255U);

  Frame other = parallel::encode_hello(hello);
  other.value[3] = 2;
  EXPECT_EQ(message_of<IoError>([&] { parallel::decode_hello(other); }),
            "rendezvous: the other side speaks version 2 of the protocol, this one version 1: use the same tandem on "
            "every host");
  EXPECT_EQ(message_of<IoError>([&] { parallel::decode_hello(parallel::encode_hello({-2, 1, 0, "h"})); }),
            "rendezvous: a hello has no rank -2 and no heartbeat of 0 ms");
  EXPECT_EQ(message_of<IoError>([&] { parallel::decode_hello({FrameKind::get, 0, "k", {}}); }),
            "rendezvous: expected a hello, got a frame of kind 3");
}

}  // namespace
}  // namespace tandem::test
