#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>
#include <tandem/data/idx.h>

#include "files.h"

// Random edits of small valid files. A reader must return an array or throw a tandem::Error. The `asan` preset runs
// these tests under sanitizers. The seed is fixed, and a failing input is printed.

namespace tandem {
namespace {

using test::bytes_of;
using test::gzip;

constexpr int kInputs = 4000;

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

class Mutator {
 public:
  /// `tokens` are byte strings with a meaning in the format; edits made of tokens get past the first checks.
  explicit Mutator(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  std::string operator()(std::string file) {
    for (std::uint32_t edits = 1 + below(4); edits > 0; --edits) {
      edit(file);
    }
    return file;
  }

 private:
  std::uint32_t below(std::size_t limit) {
    return static_cast<std::uint32_t>(random_() % std::max<std::size_t>(limit, 1));
  }

  void edit(std::string& file) {
    const std::size_t at = below(file.size() + 1);
    switch (below(6)) {
      case 0: file.resize(at); break;
      case 1: file.insert(at, tokens_[below(tokens_.size())]); break;
      case 2: file.erase(at, 1 + below(4)); break;
      case 3: file.insert(at, file.substr(below(file.size()), below(16))); break;
      case 4: file.insert(at, 1, static_cast<char>(below(256))); break;
      default:
        if (at < file.size()) {
          file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        }
    }
  }

  std::vector<std::string> tokens_;
  std::mt19937 random_{20240101};
};

/// Reads many edits of each seed; `read` checks the result. Returns the number of accepted files.
template <class Read>
int read_mutations(int inputs, const std::vector<std::string>& seeds, Mutator mutate, Read&& read) {
  int accepted = 0;
  for (int i = 0; i < inputs; ++i) {
    const std::string file = mutate(seeds[static_cast<std::size_t>(i) % seeds.size()]);
    try {
      read(file);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "threw " << error.what() << " for " << hex(file);
    }
  }
  return accepted;
}

void check_table(const data::CsvTable& table) {
  ASSERT_GT(table.num_rows(), 0);
  for (std::size_t i = 0; i < table.column_names().size(); ++i) {
    const std::size_t values = table.is_numeric(i) ? table.numeric(i).size() : table.text(i).size();
    ASSERT_EQ(values, static_cast<std::size_t>(table.num_rows()));
  }
  ASSERT_GE(table.line_of_row(0), 1);
}

TEST(Mutations, Csv) {
  const std::vector<std::string> seeds = {
      "size,price,kind\n1,2.5,small\n-3,1e3,\"big, \"\"very\"\"\nbig\"\n,NA,?\n",
      "0.1,2,3\r\n4,5e-3,6\r\n7,8,+9\r\n",
      "\xef\xbb\xbf\"a\",\"b\"\n\"1\",\"2\"\n\"3\",\"4\"\n",
  };
  const Mutator mutate({"\"", "\"\"", ",", "\n", "\r\n", "\r", "NA", "inf", "1e999", "\t", ";", "-", "0x1", " "});
  for (const data::Missing missing : {data::Missing::error, data::Missing::keep_nan, data::Missing::drop_row}) {
    const data::CsvOptions options{.missing = missing, .max_field_bytes = 64, .max_columns = 16};
    const int accepted = read_mutations(
        kInputs, seeds, mutate, [&](const std::string& file) { check_table(data::parse_csv(file, "a.csv", options)); });
    EXPECT_GT(accepted, kInputs / 20);  // edits that are all rejected at once would test nothing
    EXPECT_LT(accepted, kInputs);
  }
}

TEST(Mutations, Idx) {
  using namespace std::string_literals;
  const std::vector<std::string> seeds = {"\0\0\x08\x02\0\0\0\2\0\0\0\3abcdef"s, "\0\0\x0B\x01\0\0\0\2abcd"s,
                                          "\0\0\x0E\x01\0\0\0\1abcdefgh"s, "\0\0\x09\x03\0\0\0\1\0\0\0\2\0\0\0\1ab"s};
  const Mutator mutate({"\0"s, "\1"s, "\xff\xff\xff\xff"s, "\0\0\0\1"s, "\x0D"s, "\x80\0\0\0"s});
  const int accepted = read_mutations(kInputs, seeds, mutate, [](const std::string& file) {
    const data::IdxArray array = data::parse_idx(bytes_of(file), "a.idx");
    std::size_t bytes = item_size(array.dtype);
    for (const std::int64_t size : array.sizes) {
      bytes *= static_cast<std::size_t>(size);
    }
    ASSERT_EQ(array.bytes.size(), bytes);
  });
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_LT(accepted, kInputs);
}

TEST(Mutations, Gzip) {
  constexpr int kFiles = 1000;  // fewer, because each file is written to disk
  const test::TempDir dir;
  const std::string rows = "a,b\n1,2\n3,4\n5,6\n7,8\n";
  const std::vector<std::string> seeds = {gzip(rows), gzip(rows) + gzip("9,10\n")};
  const Mutator mutate({"\x1f\x8b", "\x1f\x8b\x08", std::string(4, '\0')});
  const int accepted = read_mutations(kFiles, seeds, mutate, [&](const std::string& file) {
    check_table(data::read_csv(dir.write("a.csv", file), {.max_bytes = 1 << 20}));
  });
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kFiles);
}

}  // namespace
}  // namespace tandem
