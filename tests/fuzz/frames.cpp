#include <tandem/parallel/rendezvous/frames.h>

#include <cstring>
#include <string>
#include <string_view>

#include <tandem/parallel/rendezvous/memory_store.h>
#include <tandem/parallel/rendezvous/store.h>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

namespace {

using parallel::Frame;
using parallel::FrameKind;
using parallel::kFrameHeader;

void apply(parallel::MemoryStore& table, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::hello: {
      const parallel::Hello hello = decode_hello(frame);
      promise(decode_hello(encode_hello(hello)) == hello, "a hello is read as it was written");
      break;
    }
    case FrameKind::set:
      table.set(frame.key, frame.value);
      promise(*table.find(frame.key) == frame.value, "what was set is there");
      break;
    case FrameKind::add: {
      const std::int64_t sum = table.add(frame.key, parallel::decode_number(frame.value));
      promise(*table.find(frame.key) == std::to_string(sum), "a counter is its decimal text");
      break;
    }
    case FrameKind::erase:
      table.erase(frame.key);
      promise(table.find(frame.key) == nullptr, "what was erased is gone");
      break;
    default: break;
  }
}

}  // namespace

void frames(Bytes input) {
  check_promises(input.size(), [&] {
    parallel::MemoryStore table;
    while (input.size() >= kFrameHeader) {
      const parallel::FrameHeader header = parallel::decode_header(input.first<kFrameHeader>());
      promise(header.key <= parallel::kMaxStoreKey && header.value <= parallel::kMaxStoreValue,
              "lengths are within the limits");
      const std::size_t whole = kFrameHeader + header.body();
      if (whole > input.size()) {
        return;
      }
      const std::string_view bytes(reinterpret_cast<const char*>(input.data()), whole);
      const Frame frame = parallel::decode_body(header, bytes.substr(kFrameHeader));
      promise(encode(frame) == bytes, "a frame has one form");
      try {
        apply(table, frame);
      } catch (const parallel::StoreError& error) {
        promise(error.kind() == parallel::StoreError::Kind::refused, "a table only refuses");
      }
      input = input.subspan(whole);
    }
    promise(table.bytes() <= parallel::kMaxStoreBytes, "a table has no more than it may");
  });
}

}  // namespace tandem::fuzz
