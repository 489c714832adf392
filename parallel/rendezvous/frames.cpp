#include <tandem/parallel/rendezvous/frames.h>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHelloBytes = 16;
constexpr std::size_t kMaxHost = 255;

struct Lengths {
  std::size_t least;
  std::size_t most;

  bool allow(std::size_t length) const { return length >= least && length <= most; }
};

struct FrameShape {
  Lengths key;
  Lengths value;
};

constexpr Lengths kNoBytes{0, 0};
constexpr Lengths kKey{1, kMaxStoreKey};
constexpr Lengths kValue{0, kMaxStoreValue};
constexpr Lengths kNumber{8, 8};
constexpr Lengths kText{1, kMaxFrameText};

// Sets the allowed lengths for frames of this kind. Returns false for an unknown kind.
bool shape_of(FrameKind kind, FrameShape& shape) {
  switch (kind) {
    case FrameKind::hello: shape = {{1, kMaxHost}, {kHelloBytes, kHelloBytes}}; return true;
    case FrameKind::set: shape = {kKey, kValue}; return true;
    case FrameKind::get:
    case FrameKind::try_get:
    case FrameKind::erase: shape = {kKey, kNoBytes}; return true;
    case FrameKind::add: shape = {kKey, kNumber}; return true;
    case FrameKind::cancel:
    case FrameKind::goodbye:
    case FrameKind::beat:
    case FrameKind::done:
    case FrameKind::no: shape = {kNoBytes, kNoBytes}; return true;
    case FrameKind::value: shape = {kNoBytes, kValue}; return true;
    case FrameKind::verdict:
    case FrameKind::refused: shape = {kNoBytes, kText}; return true;
  }
  return false;
}

std::uint32_t read_number(const std::uint8_t* bytes, std::size_t count) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    number = number << 8U | bytes[i];
  }
  return number;
}

std::uint32_t read_number(std::string_view text, std::size_t at) {
  return read_number(reinterpret_cast<const std::uint8_t*>(text.data()) + at, 4);
}

void append_number(std::string& bytes, std::uint64_t number, std::size_t count) {
  for (std::size_t i = count; i-- > 0;) {
    bytes.push_back(static_cast<char>(number >> 8U * i & 0xffU));
  }
}

}  // namespace

FrameHeader decode_header(std::span<const std::uint8_t, kFrameHeader> bytes) {
  FrameHeader header;
  header.kind = static_cast<FrameKind>(bytes[0]);
  header.key = read_number(&bytes[2], 2);
  header.id = read_number(&bytes[4], 4);
  header.value = read_number(&bytes[8], 4);
  FrameShape shape{};
  check<IoError>(shape_of(header.kind, shape) && bytes[1] == 0, "rendezvous: no frame starts with the bytes {} {}",
                 bytes[0], bytes[1]);
  check<IoError>(shape.key.allow(header.key) && shape.value.allow(header.value),
                 "rendezvous: a frame of kind {} has no lengths {}, {}", bytes[0], header.key, header.value);
  return header;
}

Frame decode_body(const FrameHeader& header, std::string_view body) {
  return {header.kind, header.id, std::string(body.substr(0, header.key)),
          std::string(body.substr(header.key, header.value))};
}

std::string encode_header(const FrameHeader& header) {
  std::string bytes;
  append_number(bytes, static_cast<std::uint8_t>(header.kind), 1);
  append_number(bytes, 0, 1);
  append_number(bytes, header.key, 2);
  append_number(bytes, header.id, 4);
  append_number(bytes, header.value, 4);
  return bytes;
}

std::string encode(const Frame& frame) {
  std::string bytes = encode_header({frame.kind, frame.id, frame.key.size(), frame.value.size()});
  bytes.reserve(bytes.size() + frame.key.size() + frame.value.size());
  return bytes.append(frame.key).append(frame.value);
}

Hello decode_hello(const Frame& frame) {
  check<IoError>(frame.kind == FrameKind::hello, "rendezvous: expected a hello, got a frame of kind {}",
                 static_cast<int>(frame.kind));
  const std::uint32_t version = read_number(frame.value, 0);
  check<IoError>(version == kVersion,
                 "rendezvous: the other side speaks version {} of the protocol, this one version {}: use the same "
                 "tandem on every host",
                 version, kVersion);
  Hello hello;
  hello.rank = static_cast<std::int32_t>(read_number(frame.value, 4));
  hello.pid = read_number(frame.value, 8);
  hello.heartbeat_ms = read_number(frame.value, 12);
  hello.host = frame.key;
  check<IoError>(hello.rank >= -1 && hello.heartbeat_ms >= 1,
                 "rendezvous: a hello has no rank {} and no heartbeat of {} ms", hello.rank, hello.heartbeat_ms);
  return hello;
}

Frame encode_hello(const Hello& hello) {
  std::string value;
  append_number(value, kVersion, 4);
  append_number(value, static_cast<std::uint32_t>(hello.rank), 4);
  append_number(value, hello.pid, 4);
  append_number(value, hello.heartbeat_ms, 4);
  std::string host = hello.host.substr(0, kMaxHost);
  return {FrameKind::hello, 0, host.empty() ? "?" : std::move(host), std::move(value)};
}

std::int64_t decode_number(std::string_view eight_bytes) {
  return static_cast<std::int64_t>(std::uint64_t{read_number(eight_bytes, 0)} << 32U | read_number(eight_bytes, 4));
}

std::string encode_number(std::int64_t number) {
  std::string bytes;
  append_number(bytes, static_cast<std::uint64_t>(number), 8);
  return bytes;
}

}  // namespace tandem::inline v0::parallel
