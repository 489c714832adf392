#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: the frames that a StoreServer and a TcpStore exchange, as bytes. This code has no sockets, so a fuzzer can
// pass it any input. Numbers are big-endian. docs/rendezvous.md specifies the whole protocol.

namespace tandem::inline v0::parallel {

/// The kinds of frames. Kinds below 64 go to the server, the others come from it; beats and verdicts go both ways.
enum class FrameKind : std::uint8_t {
  hello = 1,  // key: host; value: a Hello. Exactly once, as the first frame
  set,        // key, value -> done
  get,        // key -> value, once there is one
  try_get,    // key -> value or no
  add,        // key, value: 8 bytes -> value: 8 bytes
  erase,      // key -> done or no
  cancel,     // the client no longer waits for the get with this id; no answer
  goodbye,    // the connection is about to close on purpose; no answer
  beat = 32,  // a sign of life; the server answers with a beat
  verdict,    // value: the reason why the job is over
  done = 64,
  value,
  no,
  refused  // value: the reason
};

/// One message of the protocol.
struct Frame {
  FrameKind kind = FrameKind::beat;
  std::uint32_t id = 0;  // of a request and of its answer
  std::string key;
  std::string value;

  bool operator==(const Frame&) const = default;
};

/// The size of the header before each frame's key and value, in bytes.
inline constexpr std::size_t kFrameHeader = 12;
/// The longest verdict, and the longest reason of a refusal, in bytes.
inline constexpr std::size_t kMaxFrameText = 4096;

/// A validated header: the kind is known and allows these lengths.
struct FrameHeader {
  FrameKind kind = FrameKind::beat;
  std::uint32_t id = 0;
  std::size_t key = 0;
  std::size_t value = 0;

  std::size_t body() const noexcept { return key + value; }
};

/// Throws IoError for an unknown kind and for lengths that the kind does not allow, before any memory is allocated.
TANDEM_API FrameHeader decode_header(std::span<const std::uint8_t, kFrameHeader> bytes);
/// `body` must have header.body() bytes.
TANDEM_API Frame decode_body(const FrameHeader& header, std::string_view body);

/// Encodes the header of a frame with these lengths.
TANDEM_API std::string encode_header(const FrameHeader& header);
/// Encodes the whole frame.
TANDEM_API std::string encode(const Frame& frame);

/// A client's introduction to the server.
struct Hello {
  std::int32_t rank = -1;  // -1: not a rank of the job
  std::uint32_t pid = 0;
  std::uint32_t heartbeat_ms = 1000;  // the client's heartbeat interval
  std::string host;

  bool operator==(const Hello&) const = default;
};

/// Throws IoError for another version of the protocol and for values that no client sends.
TANDEM_API Hello decode_hello(const Frame& frame);
TANDEM_API Frame encode_hello(const Hello& hello);

TANDEM_API std::int64_t decode_number(std::string_view eight_bytes);
TANDEM_API std::string encode_number(std::int64_t number);

}  // namespace tandem::inline v0::parallel
