#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/checkpoint/stored_tensors.h>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

void safetensors(Bytes input) {
  using namespace checkpoint;
  check_promises(input.size(), [&] {
    const SafetensorsHeader::Read read = [&](std::uint64_t offset, std::span<char> bytes) {
      promise(offset + bytes.size() <= input.size(), "only bytes of the file are read");
      if (!bytes.empty()) {
        std::memcpy(bytes.data(), &input[offset], bytes.size());
      }
    };
    const SafetensorsHeader header("a", input.size(), read);
    std::uint64_t end = 0;
    for (std::size_t place = 0; place < header.size(); ++place) {
      const SafetensorsHeader::Entry& entry = header.entry(place);
      promise(entry.begin == end && entry.end >= end, "the tensors follow each other");
      promise(header.find(entry.name) == place, "a tensor is found by its name");
      end = entry.end;
    }
    promise(header.data_offset() + end == input.size(), "the tensors end with the file");
    if (end > 65536 || header.size() > 64) {
      return;
    }
    std::vector<std::size_t> places(header.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const StateDict state = read_tensors(header, places, read, "a", true);
    promise(state.size() == header.size(), "every tensor is read");
  });
}

}  // namespace tandem::fuzz
