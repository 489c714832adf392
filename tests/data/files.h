#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include <tandem/data/csv.h>

#include "support/message.h"
#include "support/temp_dir.h"

// Helpers shared by the tests of readers.

namespace tandem::test {

inline std::string gzip(std::string_view content) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string input(content);
  std::string output(deflateBound(&stream, input.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(output.data());
  stream.avail_out = static_cast<uInt>(output.size());
  deflate(&stream, Z_FINISH);
  output.resize(stream.total_out);
  deflateEnd(&stream);
  return output;
}

inline std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

inline data::CsvTable parse_csv_text(std::string_view text, const data::CsvOptions& options = {}) {
  return data::parse_csv(text, "a.csv", options);
}

}  // namespace tandem::test
