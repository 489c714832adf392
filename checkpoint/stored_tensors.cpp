#include <tandem/checkpoint/stored_tensors.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/thread_pool.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::checkpoint {

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;  // read at once

// XXH3's canonical form: the high half first, each half big-endian.
std::string digits_of(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }
  /// Begins the hash of a stored tensor. Its bytes follow.
  Hasher(std::string_view name, const StoredType& type, const Shape& shape) : Hasher() {
    add_text(name);
    add_text(type.name);
    add_text(to_string(shape));
  }
  void add(std::string_view bytes) { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }
  // The length keeps "ab" + "c" and "a" + "bc" apart.
  void add_text(std::string_view text) {
    const std::uint64_t length = text.size();
    XXH3_128bits_update(&state_, &length, sizeof length);
    add(text);
  }
  std::string digits() const { return digits_of(XXH3_128bits_digest(&state_)); }

 private:
  XXH3_state_t state_{};
};

// The seal covers all metadata but itself, in the order of the keys.
std::string seal_of(const Metadata& metadata) {
  std::vector<const Metadata::value_type*> pairs;
  for (const auto& pair : metadata) {
    if (pair.first != kSeal) {
      pairs.push_back(&pair);
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  Hasher hasher;
  for (const auto* pair : pairs) {
    hasher.add_text(pair->first);
    hasher.add_text(pair->second);
  }
  return hasher.digits();
}

// Float8 with two bits of fraction is the upper half of a Float16.
Float16 from_e5m2(std::uint8_t byte) { return std::bit_cast<Float16>(static_cast<std::uint16_t>(byte << 8U)); }

// Four bits of exponent with a bias of 7, three of fraction, no infinity: 0x7f and 0xff are NaN.
Float16 from_e4m3(std::uint8_t byte) {
  const int exponent = (byte >> 3U) & 15;
  const int fraction = byte & 7;
  float value = std::ldexp(exponent == 0 ? static_cast<float>(fraction) : static_cast<float>(8 + fraction),
                           (exponent == 0 ? 1 : exponent) - 10);
  value = (byte & 0x7fU) == 0x7fU ? __builtin_nanf("") : value;
  return Float16((byte & 0x80U) != 0 ? -value : value);
}

// `bytes` may be the tail of the tensor's own memory: an element is never written before the bytes there were read.
template <class Stored, class T, class Convert>
void convert(std::span<const char> bytes, Tensor& out, Convert&& to) {
  T* const elements = out.mutable_data<T>();
  for (std::size_t i = 0; i < bytes.size() / sizeof(Stored); ++i) {
    Stored stored;
    std::memcpy(&stored, &bytes[i * sizeof(Stored)], sizeof stored);
    elements[i] = to(stored);
  }
}

// Fills `out` from elements of a type that tandem widens.
void widen(const std::string& path, const SafetensorsHeader::Entry& entry, std::span<const char> bytes, Tensor& out) {
  const std::string_view type = entry.type->name;
  const auto to_i32 = [](auto value) { return static_cast<std::int32_t>(value); };
  const auto to_i64 = [](auto value) { return static_cast<std::int64_t>(value); };
  if (type == "I8") {
    convert<std::int8_t, std::int32_t>(bytes, out, to_i32);
  } else if (type == "I16") {
    convert<std::int16_t, std::int32_t>(bytes, out, to_i32);
  } else if (type == "U16") {
    convert<std::uint16_t, std::int32_t>(bytes, out, to_i32);
  } else if (type == "U32") {
    convert<std::uint32_t, std::int64_t>(bytes, out, to_i64);
  } else if (type == "U64") {
    convert<std::uint64_t, std::int64_t>(bytes, out, [&](std::uint64_t value) {
      check<IoError>(value >> 63U == 0, "safetensors '{}': tensor '{}' has {}, which is too large for i64", path,
                     shown_name(entry.name), value);
      return static_cast<std::int64_t>(value);
    });
  } else if (type == "F8_E5M2") {
    convert<std::uint8_t, Float16>(bytes, out, from_e5m2);
  } else if (type == "F8_E4M3") {
    convert<std::uint8_t, Float16>(bytes, out, from_e4m3);
  }
}

// A tensor on its way from the file.
struct Arrival {
  const SafetensorsHeader::Entry* entry;
  std::size_t place;
  Tensor tensor;
  std::span<char> bytes;  // as in the file; the tail of the tensor's memory where the file's type is a smaller one

  bool is_widened() const { return entry->type != &stored_type(*entry->type->dtype); }
};

Arrival prepare(const SafetensorsHeader& header, std::size_t place, const std::string& path) {
  const SafetensorsHeader::Entry& entry = header.entry(place);
  if (!entry.type->dtype) {
    fail<IoError>("safetensors '{}': tensor '{}' is {}, a type that tandem does not have; convert it in Python", path,
                  shown_name(entry.name), entry.type->name);
  }
  Arrival arrival{&entry, place, empty(header.shape(entry), {.dtype = *entry.type->dtype, .device = "cpu"}), {}};
  const std::size_t stored = entry.end - entry.begin;
  const std::size_t whole = static_cast<std::size_t>(arrival.tensor.numel()) * item_size(arrival.tensor.dtype());
  arrival.bytes = {static_cast<char*>(arrival.tensor.raw().data()) + (whole - stored), stored};
  return arrival;
}

[[noreturn]] void fail_hash(const std::string& path, std::string_view name, std::string_view hash) {
  fail<IoError>(
      "safetensors '{}': the bytes of tensor '{}' are not those that were saved (their hash is {}): the file "
      "is damaged [TDM-E510]",
      path, shown_name(name), hash);
}

void finish(Arrival& arrival, const std::string& path, const std::string& expected, const Shape& shape) {
  const SafetensorsHeader::Entry& entry = *arrival.entry;
  if (!expected.empty()) {
    const std::string hash = hash_of(entry.name, *entry.type, shape, arrival.bytes);
    if (hash != expected) {
      fail_hash(path, entry.name, hash);
    }
  }
  if (arrival.is_widened()) {
    widen(path, entry, arrival.bytes, arrival.tensor);
  } else if (arrival.tensor.dtype() == DType::boolean) {
    // Another program may have written any byte.
    for (char& byte : arrival.bytes) {
      byte = static_cast<char>(byte != 0);
    }
  }
}

// A tensor of the state, in the form in which it is written.
struct Outgoing {
  const std::string* name;
  Tensor dense;
};

std::string_view bytes_of(const Tensor& dense) {
  return {static_cast<const char*>(dense.raw().data()),
          static_cast<std::size_t>(dense.numel()) * item_size(dense.dtype())};
}

// Larger elements first, then by name, so that all are aligned and equal states make equal files.
std::vector<Outgoing> ordered(const StateDict& state) {
  std::vector<Outgoing> tensors;
  for (const auto& [name, value] : state) {
    check<ConfigError>(value.defined(), "save: the tensor '{}' is undefined", name);
    tensors.push_back({&name, value.detach().to("cpu").contiguous()});
  }
  std::sort(tensors.begin(), tensors.end(), [](const Outgoing& a, const Outgoing& b) {
    const std::size_t left = item_size(a.dense.dtype());
    const std::size_t right = item_size(b.dense.dtype());
    return left != right ? left > right : *a.name < *b.name;
  });
  return tensors;
}

}  // namespace

std::string hash_of(std::string_view name, const StoredType& type, const Shape& shape, std::span<const char> bytes) {
  Hasher hasher(name, type, shape);
  hasher.add({bytes.data(), bytes.size()});
  return hasher.digits();
}

bool has_hashes(const SafetensorsHeader& header) {
  return value_of(header.metadata(), kHashes) != nullptr || value_of(header.metadata(), kSeal) != nullptr;
}

void check_seal(const SafetensorsHeader& header, const std::string& path) {
  const std::string* hashes = value_of(header.metadata(), kHashes);
  const std::string* seal = value_of(header.metadata(), kSeal);
  if (has_hashes(header) && (hashes == nullptr || seal == nullptr || *seal != seal_of(header.metadata()) ||
                             hashes->size() != kHashDigits * header.size())) {
    fail<IoError>(
        "safetensors '{}': the header is not the one that was saved: the file is damaged, or another program "
        "has changed its tensors or \"__metadata__\" (SafetensorsFile::read_all(false) reads it all the same) "
        "[TDM-E510]",
        path);
  }
}

std::string stored_hash(const SafetensorsHeader& header, std::size_t place) {
  const std::string* hashes = value_of(header.metadata(), kHashes);
  const std::size_t at = header.rank_of_name(place) * kHashDigits;
  return hashes == nullptr || at + kHashDigits > hashes->size() ? std::string() : hashes->substr(at, kHashDigits);
}

StateDict read_tensors(const SafetensorsHeader& header, std::span<const std::size_t> places,
                       const SafetensorsHeader::Read& read, const std::string& path, bool verify) {
  struct Piece {
    std::size_t arrival;
    std::uint64_t offset;  // within the tensor
  };
  std::vector<Arrival> arrivals;
  std::vector<Piece> pieces;
  for (const std::size_t place : places) {
    arrivals.push_back(prepare(header, place, path));
    for (std::uint64_t offset = 0; offset < arrivals.back().bytes.size(); offset += kPieceBytes) {
      pieces.push_back({arrivals.size() - 1, offset});
    }
  }
  core::parallel_for(static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t i, std::int64_t) {
    const auto [index, offset] = pieces[static_cast<std::size_t>(i)];
    const Arrival& arrival = arrivals[index];
    const std::size_t bytes = std::min<std::uint64_t>(kPieceBytes, arrival.bytes.size() - offset);
    read(header.data_offset() + arrival.entry->begin + offset, arrival.bytes.subspan(offset, bytes));
  });
  core::parallel_for(static_cast<std::int64_t>(arrivals.size()), 1, [&](std::int64_t i, std::int64_t) {
    Arrival& arrival = arrivals[static_cast<std::size_t>(i)];
    finish(arrival, path, verify ? stored_hash(header, arrival.place) : std::string(), header.shape(*arrival.entry));
  });
  std::vector<StateDict::Entry> entries;
  entries.reserve(arrivals.size());
  for (Arrival& arrival : arrivals) {
    entries.emplace_back(arrival.entry->name, std::move(arrival.tensor));
  }
  return StateDict(std::move(entries));
}

void verify_tensors(const SafetensorsHeader& header, const SafetensorsHeader::Read& read, const std::string& path) {
  core::parallel_for(static_cast<std::int64_t>(header.size()), 1, [&](std::int64_t i, std::int64_t) {
    const auto place = static_cast<std::size_t>(i);
    const SafetensorsHeader::Entry& entry = header.entry(place);
    std::vector<char> piece(std::min(kPieceBytes, entry.end - entry.begin));
    Hasher hasher(entry.name, *entry.type, header.shape(entry));
    for (std::uint64_t at = entry.begin; at < entry.end;) {
      const std::span<char> bytes(piece.data(), std::min(kPieceBytes, entry.end - at));
      read(header.data_offset() + at, bytes);
      hasher.add({bytes.data(), bytes.size()});
      at += bytes.size();
    }
    if (const std::string hash = hasher.digits(); hash != stored_hash(header, place)) {
      fail_hash(path, entry.name, hash);
    }
  });
}

std::uint64_t hash_of(const Tensor& tensor) {
  const Tensor dense = tensor.detach().to("cpu").contiguous();
  const std::string_view bytes = bytes_of(dense);
  return XXH3_64bits(bytes.data(), bytes.size());
}

EncodedFile encode(const StateDict& state, const Metadata& more) {
  const std::vector<Outgoing> tensors = ordered(state);
  std::vector<StoredTensor> stored;
  for (const Outgoing& tensor : tensors) {
    stored.push_back({*tensor.name, tensor.dense.dtype(), tensor.dense.shape()});
  }
  check_names(stored);

  std::vector<std::size_t> by_name(tensors.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::sort(by_name.begin(), by_name.end(), [&](auto a, auto b) { return *tensors[a].name < *tensors[b].name; });
  std::string hashes(kHashDigits * tensors.size(), '0');
  core::parallel_for(static_cast<std::int64_t>(tensors.size()), 1, [&](std::int64_t i, std::int64_t) {
    const auto place = static_cast<std::size_t>(i);
    const std::size_t at = by_name[place];
    const std::string_view bytes = bytes_of(tensors[at].dense);
    hash_of(*tensors[at].name, stored_type(stored[at].dtype), stored[at].shape, bytes)
        .copy(&hashes[place * kHashDigits], kHashDigits);
  });
  Metadata metadata;
  if (value_of(more, "format") == nullptr) {
    metadata.emplace_back("format", "pt");  // Hugging Face's loaders ask for it
  }
  for (const auto& [key, text] : more) {
    check<ConfigError>(value_of(metadata, key) == nullptr, "save: the metadata '{}' is given twice", shown_name(key));
    check<ConfigError>(!key.starts_with(kOwnMetadata),
                       "save: the metadata '{}' begins with '{}', as only tandem's own does", shown_name(key),
                       kOwnMetadata);
    metadata.emplace_back(key, text);
  }
  metadata.emplace_back(kHashes, hashes);
  metadata.emplace_back(kSeal, seal_of(metadata));

  EncodedFile file{safetensors_header(stored, metadata), {}};
  for (const Outgoing& tensor : tensors) {
    file.tensors.push_back(tensor.dense);
  }
  return file;
}

std::vector<std::string_view> EncodedFile::parts() const {
  std::vector<std::string_view> parts{header};
  for (const Tensor& tensor : tensors) {
    parts.push_back(bytes_of(tensor));
  }
  return parts;
}

std::string to_bytes(const StateDict& state) {
  const EncodedFile file = encode(state, {});
  std::string bytes;
  for (const std::string_view part : file.parts()) {
    bytes += part;
  }
  return bytes;
}

StateDict from_bytes(std::string_view bytes, const std::string& path) {
  const SafetensorsHeader::Read read = [&](std::uint64_t offset, std::span<char> out) {
    if (!out.empty()) {
      std::memcpy(out.data(), bytes.data() + offset, out.size());
    }
  };
  const SafetensorsHeader header(path, bytes.size(), read);
  check_seal(header, path);
  std::vector<std::size_t> places(header.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  return read_tensors(header, places, read, path, has_hashes(header));
}

void write_tensors(const StateDict& state, const std::string& path, const Metadata& more, core::FileOps& ops) {
  core::replace_file(path, encode(state, more).parts(), ops);
}

}  // namespace tandem::inline v0::checkpoint
