#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: what goes over the wire between a StoreServer and a TcpStore, as bytes. No sockets here: a fuzzer hands it
// anything. Numbers are big-endian. docs/rendezvous.md has the whole protocol.

namespace tandem::inline v0::parallel {

/// The numbers on the wire. Those below 64 go to the server, the others come from it; beats and verdicts go both ways.
enum class FrameKind : std::uint8_t {
  hello = 1,    // key: host; value: a Hello. Once, first
  set,          // key, value -> done
  get,          // key -> value, once there is one
  try_get,      // key -> value or no
  wait,         // key -> done, once there is a value
  add,          // key, value: 8 bytes -> value: 8 bytes
  compare_set,  // key, expected, value -> done or no
  insert,       // key, value: compare_set with nothing expected
  erase,        // key -> done or no
  cancel,       // the get or wait with this id is not awaited any more; no answer
  goodbye,      // the connection will be closed on purpose; no answer
  beat = 32,    // I am alive; the server answers with one
  verdict,      // value: why the job is over
  done = 64,
  value,
  no,
  refused  // value: why
};

/// One message.
struct Frame {
  FrameKind kind = FrameKind::beat;
  std::uint32_t id = 0;  // of the request, and of its answer
  std::string key;
  std::string value;
  std::string expected;

  bool operator==(const Frame&) const = default;
};

/// What comes before each frame's key, expected value and value.
inline constexpr std::size_t kFrameHeader = 16;
/// The longest verdict, and the longest reason of a refusal.
inline constexpr std::size_t kMaxFrameText = 4096;

/// A header whose kind is known, and whose lengths are those that this kind may have.
struct FrameHeader {
  FrameKind kind = FrameKind::beat;
  std::uint32_t id = 0;
  std::size_t key = 0;
  std::size_t expected = 0;
  std::size_t value = 0;

  std::size_t body() const noexcept { return key + expected + value; }
};

/// Throws IoError for a kind that is not known and for lengths that this kind may not have: no memory is taken before.
TANDEM_API FrameHeader decode_header(std::span<const std::uint8_t, kFrameHeader> bytes);
/// `body` has header.body() bytes.
TANDEM_API Frame decode_body(const FrameHeader& header, std::string_view body);

/// The header of a frame with these lengths.
TANDEM_API std::string encode_header(const FrameHeader& header);
/// The whole frame.
TANDEM_API std::string encode(const Frame& frame);

/// Who a client is.
struct Hello {
  std::int32_t rank = -1;  // -1: not a rank of the job
  std::uint32_t pid = 0;
  std::uint32_t heartbeat_ms = 1000;  // how often it will say that it is alive
  std::string host;

  bool operator==(const Hello&) const = default;
};

/// Throws IoError for another version of the protocol, and for what no client says.
TANDEM_API Hello decode_hello(const Frame& frame);
TANDEM_API Frame encode_hello(const Hello& hello);

TANDEM_API std::int64_t decode_number(std::string_view eight_bytes);
TANDEM_API std::string encode_number(std::int64_t number);

}  // namespace tandem::inline v0::parallel
