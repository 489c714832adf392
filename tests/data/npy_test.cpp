#include <tandem/data/npy.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/data/npy_header.h>
#include <tandem/tensor/factories.h>

#include "files.h"

// Compares with files written by NumPy, see tests/golden/npy.py.

namespace tandem {
namespace {

using data::load_npy;
using data::parse_npy;
using data::save_npy;
using nlohmann::json;
using test::bytes_of;
using test::message_of;
using test::TempDir;

json golden(const char* section) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/npy.json");
  return json::parse(file).at(section);
}

std::string unhex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// The elements of a case as a tensor of its own dtype. Integers in JSON are exact.
Tensor expected(const json& entry) {
  const Shape shape(entry.at("shape").get<std::vector<std::int64_t>>());
  const std::string dtype = entry.at("dtype");
  if (dtype.starts_with('f')) {
    return from_data(entry.at("data").get<std::vector<double>>(), shape)
        .to(dtype == "f16"   ? DType::f16
            : dtype == "f32" ? DType::f32
                             : DType::f64);
  }
  std::vector<std::int64_t> integers;
  for (const json& value : entry.at("data")) {
    integers.push_back(value.is_boolean() ? value.get<bool>() : value.get<std::int64_t>());
  }
  const Tensor wide = from_data(integers, shape);
  return dtype == "i64"    ? wide
         : dtype == "i32"  ? wide.to(DType::i32)
         : dtype == "bool" ? wide.to(DType::boolean)
                           : wide.to(DType::u8);
}

void expect_same(const Tensor& got, const Tensor& wanted) {
  ASSERT_EQ(got.dtype(), wanted.dtype());
  ASSERT_EQ(got.shape(), wanted.shape());
  EXPECT_TRUE(got.is_contiguous());
  EXPECT_EQ(got.to_vector<std::int64_t>(), wanted.to_vector<std::int64_t>());
  EXPECT_EQ(got.to_vector<double>(), wanted.to_vector<double>());
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const json cases = golden("read");
  ASSERT_GT(cases.size(), 30U);
  for (const json& entry : cases) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    expect_same(parse_npy(bytes_of(unhex(entry.at("file"))), "a.npy"), expected(entry));
  }
}

TEST(Npy, RefusesEachPrefixOfAFileOfNumPyAndWhatIsTooLong) {
  for (const json& entry : golden("read")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const std::string file = unhex(entry.at("file"));
    for (std::size_t length = 0; length < file.size(); ++length) {
      EXPECT_THROW(parse_npy(bytes_of(file.substr(0, length)), "a.npy"), IoError) << length;
    }
    EXPECT_THROW(parse_npy(bytes_of(file + "x"), "a.npy"), IoError);
  }
}

TEST(Npy, WritesWhatNumPyWrites) {
  const TempDir dir;
  const std::string path = dir.file("a.npy");
  for (const json& entry : golden("written")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    save_npy(path, expected(entry));
    EXPECT_EQ(test::read_text(path), unhex(entry.at("file")));
    expect_same(load_npy(path), expected(entry));
  }
}

TEST(Npy, KeepsBitsOfNumbersThatAreNone) {
  const TempDir dir;
  const std::vector<float> values{std::numeric_limits<float>::quiet_NaN(), -0.0F, -INFINITY, 1e-45F};
  save_npy(dir.file("a.npy"), from_data(values));
  const Tensor back = load_npy(dir.file("a.npy"));
  EXPECT_TRUE(std::isnan(back.data<float>()[0]));
  EXPECT_TRUE(std::signbit(back.data<float>()[1]));
  EXPECT_EQ(back.data<float>()[2], -INFINITY);
  EXPECT_EQ(back.data<float>()[3], 1e-45F);
}

TEST(Npy, SavesViewsOtherDevicesAndTensorsWithGradients) {
  const TempDir dir;
  const std::string path = dir.file("a.npy");
  const Tensor matrix = arange(6).reshape({2, 3});
  save_npy(path, matrix.t());
  expect_same(load_npy(path), matrix.t().contiguous());
  save_npy(path, matrix.narrow(1, 1, 2));
  expect_same(load_npy(path), matrix.narrow(1, 1, 2).contiguous());
  save_npy(path, matrix.to("cpu:1"));
  EXPECT_EQ(load_npy(path).device(), Device("cpu:0"));
  save_npy(path, ones({2}, {.requires_grad = true}));
  EXPECT_FALSE(load_npy(path).requires_grad());
}

TEST(Npy, TrueIsAnyByteButZero) {
  const std::string file = data::npy_header(DType::boolean, {3}) + std::string("\0\1\xff", 3);
  const Tensor flags = parse_npy(bytes_of(file), "a.npy");
  const auto* memory = reinterpret_cast<const std::uint8_t*>(flags.data<bool>());
  EXPECT_EQ((std::vector<int>{memory[0], memory[1], memory[2]}), (std::vector<int>{0, 1, 1}));
}

TEST(Npy, ElementsStartAtAMultipleOf64) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape::filled(8, 1), Shape::filled(8, 100)}) {
    const std::string header = data::npy_header(DType::f32, shape);
    EXPECT_EQ(header.size() % 64, 0U);
    EXPECT_EQ(header.back(), '\n');
  }
}

// ---- errors ----

using namespace std::string_literals;

std::string npy(std::string_view dictionary, std::string_view elements = "", char version = 1) {
  std::string file = "\x93NUMPY"s + version + '\0' + static_cast<char>(dictionary.size()) + '\0';
  file += version == 1 ? "" : "\0\0"s;
  return file.append(dictionary).append(elements);
}

std::string npy_error(std::string_view file) {
  return message_of<IoError>([&] { parse_npy(bytes_of(file), "a.npy"); });
}

TEST(NpyErrors, RefusesElementTypesByName) {
  const std::vector<std::string> texts{
      "a.npy: byte 20: the array holds floating point of more than 64 bits ('<f16'), which cannot be read; save "
      "array.astype(np.float64)",
      "a.npy: byte 20: the array holds unsigned 64-bit integers, some of which i64 does not hold ('<u8'), which cannot "
      "be read; save array.astype(np.int64)",
      "a.npy: byte 20: the array holds complex numbers ('<c8'), which cannot be read; save array.real and array.imag "
      "as two files",
      "a.npy: byte 20: the array holds Python objects, which only code from the file could make, and none is ever run "
      "('|O'), which cannot be read; save array.astype(np.float32)",
      "a.npy: byte 20: the array holds byte strings ('|S2'), which cannot be read; save numbers, such as the inverse "
      "of np.unique(array, return_inverse=True)",
      "a.npy: byte 20: the array holds text ('<U2'), which cannot be read; save numbers, such as the inverse of "
      "np.unique(array, return_inverse=True)",
      "a.npy: byte 20: the array holds dates ('<M8[D]'), which cannot be read; save array.astype(np.int64)",
      "a.npy: byte 20: the array holds time spans ('<m8[s]'), which cannot be read; save array.astype(np.int64)",
      "a.npy: byte 20: the array holds raw bytes or records ('|V3'), which cannot be read; save array.view(np.uint8), "
      "or each field array['name'] as a file",
      "a.npy: byte 20: the array is structured (its elements have fields); save each field array['name'] as a file",
      "a.npy: byte 85: more than 8 dimensions",
  };
  const json cases = golden("refused");
  ASSERT_EQ(cases.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(npy_error(unhex(cases[i].at("file"))), texts[i]);
  }
  EXPECT_EQ(npy_error(npy("{'descr': 'float', 'fortran_order': False, 'shape': ()}")),
            "a.npy: byte 20: the array holds floating point of more than 64 bits ('float'), which cannot be read; save "
            "array.astype(np.float64)");
  EXPECT_EQ(npy_error(npy("{'descr': '<x4'}")),
            "a.npy: byte 20: unknown element type '<x4'; expected one like '<f4': f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 or b1");
}

TEST(NpyErrors, SayWhatAFileIsInstead) {
  EXPECT_EQ(npy_error(""), "a.npy: byte 0: not a NumPy file: expected '\\x93NUMPY', found ''");
  EXPECT_EQ(npy_error("\x93NUM"), "a.npy: byte 0: not a NumPy file: expected '\\x93NUMPY', found '\x93NUM'");
  EXPECT_EQ(npy_error("a,b\n1,2\n"),
            "a.npy: byte 0: not a NumPy file: expected '\\x93NUMPY', found 'a,b\\x0a1,'; this looks like a text "
            "file, perhaps CSV");
  EXPECT_EQ(npy_error("PK\x03\x04zip"),
            "a.npy: byte 0: not a NumPy file: expected '\\x93NUMPY', found 'PK\\x03\\x04zi'; this looks like a zip "
            "archive: if it is an .npz file, save each of its arrays with np.save");
  const TempDir dir;
  const std::string path = dir.write("a.npy.gz", test::gzip(data::npy_header(DType::f32, {0})));
  EXPECT_THAT(message_of<IoError>([&] { load_npy(path); }),
              testing::EndsWith("; this is gzip data: unpack it first (gunzip)"));
}

TEST(NpyErrors, VersionAndLength) {
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
  EXPECT_EQ(npy_error(npy(dictionary, "12345678", 4)),
            "a.npy: byte 6: version 4.0 of the format; expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(npy_error("\x93NUMPY\1\0\5"s),
            "a.npy: byte 9: the file ends inside its header; expected a version and the header's length");
  EXPECT_EQ(npy_error("\x93NUMPY\2\0\0\0\1\0"s),
            "a.npy: byte 12: the file ends inside its header; expected 65536 "
            "header bytes after byte 12");
  EXPECT_EQ(npy_error("\x93NUMPY\2\0\xff\xff\xff\xff"s),
            "a.npy: byte 8: a header of 4294967295 bytes, the limit is 65536; the file is corrupt");
  EXPECT_EQ(npy_error(npy(dictionary, "1234567")),
            "a.npy: byte 72: the file ends early: shape [2] of f4 needs 8 bytes after the header, found 7");
  EXPECT_EQ(
      npy_error(npy(dictionary, "123456789")),
      "a.npy: byte 73: too many bytes: shape [2] of f4 needs 8 bytes after the header, and more follow; a file holds "
      "one array");
}

TEST(NpyErrors, ShapesThatCannotBeCounted) {
  const auto with_shape = [](const std::string& shape) {
    return npy_error(npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + "}"));
  };
  EXPECT_EQ(with_shape("(4294967296, 4294967296)"),
            "a.npy: byte 60: shape [4294967296, 4294967296] is more than can be counted; the header is corrupt");
  EXPECT_EQ(with_shape("(2305843009213693952,)"),
            "a.npy: byte 60: shape [2305843009213693952] is more than can be counted; the header is corrupt");
  EXPECT_EQ(with_shape("(0, 4294967296, 4294967296)"),
            "a.npy: byte 60: shape [0, 4294967296, 4294967296] is more than can be counted; the header is corrupt");
  EXPECT_EQ(with_shape("(99999999999999999999,)"),
            "a.npy: byte 61: a size that is more than can be counted; the header is corrupt");
  EXPECT_EQ(with_shape("(1000000000,)"),
            "a.npy: byte 74: the file ends early: shape [1000000000] of f8 needs 8000000000 bytes after the header, "
            "found 0");
}

TEST(NpyErrors, HeadersThatAreNoDictionaryOfThreeKeys) {
  const auto expected_found = [](std::string_view dictionary) {
    const std::string text = npy_error(npy(dictionary));
    return text.substr(text.find("byte"));
  };
  EXPECT_EQ(expected_found(""), "byte 10: expected '{' in the header, found its end");
  EXPECT_EQ(expected_found("[1]"), "byte 10: expected '{' in the header, found '[1]'");
  EXPECT_EQ(expected_found("{"), "byte 11: expected a key in quotes in the header, found its end");
  EXPECT_EQ(expected_found("{'descr'}"), "byte 18: expected ':' in the header, found '}'");
  EXPECT_EQ(expected_found("{'descr: 1"), "byte 11: expected a key in quotes in the header, found ''descr: 1'");
  EXPECT_EQ(expected_found("{'d\\x41': 1}"),
            "byte 11: expected a key in quotes without a backslash in the header, found ''d\\x41': 1}'");
  EXPECT_EQ(expected_found("{'descr': f4}"), "byte 20: expected an element type in quotes in the header, found 'f4}'");
  EXPECT_EQ(expected_found("{'fortran_order': 0}"), "byte 28: expected True or False in the header, found '0}'");
  EXPECT_EQ(expected_found("{'shape': 3}"), "byte 20: expected a shape such as (3, 4) in the header, found '3}'");
  EXPECT_EQ(expected_found("{'shape': (3)}"),
            "byte 22: expected ',' after the only size, as in (3,) in the header, found ')}'");
  EXPECT_EQ(expected_found("{'shape': (-3,)}"),
            "byte 21: expected a size, a whole number from 0 on in the header, found '-3,)}'");
  EXPECT_EQ(expected_found("{'shape': (03,)}"),
            "byte 21: expected a size, a whole number from 0 on in the header, found '03,)}'");
  EXPECT_EQ(expected_found("{'shape': (3.5,)}"), "byte 22: expected ',' or ')' in the header, found '.5,)}'");
  EXPECT_EQ(expected_found("{'shape': (3,) 'a'}"), "byte 25: expected ',' or '}' in the header, found ''a'}'");
  EXPECT_EQ(expected_found("{'shape': (3,), 'shape': (3,)}"), "byte 26: key 'shape' appears twice in the header");
  EXPECT_EQ(expected_found("{'order': 1}"),
            "byte 11: unknown key 'order' in the header; expected 'descr', 'fortran_order' and 'shape'");
  EXPECT_EQ(expected_found("{'shape': (3,), 'fortran_order': True, }"),
            "byte 10: the header has no key 'descr'; expected 'descr', 'fortran_order' and 'shape'");
  EXPECT_EQ(expected_found("{'descr': '<f4', 'shape': (0,), 'fortran_order': True} + 1"),
            "byte 65: expected only blanks after the header's '}', found '+ 1'");
}

TEST(Npy, ReadsHeadersOfOtherWriters) {
  const auto shape_of = [](std::string_view dictionary) {
    return parse_npy(bytes_of(npy(dictionary, "abcd", 2)), "a.npy").shape();
  };
  EXPECT_EQ(shape_of("{\"shape\":(4,),\"descr\":\"u1\",\"fortran_order\":True}"), (Shape{4}));
  EXPECT_EQ(shape_of(" {'descr': '=u1', 'fortran_order': False, 'shape': (2L, 2L), } \n"), (Shape{2, 2})) << "Python 2";
  EXPECT_EQ(shape_of("{'shape': (1 , 1 ,)\t,\n'descr': '>i4' , 'fortran_order':False}"), (Shape{1, 1}));
}

TEST(NpyErrors, Saving) {
  const TempDir dir;
  EXPECT_EQ(message_of<IoError>([&] { save_npy(dir.file("none/a.npy"), ones({2})); }),
            "cannot write '" + dir.file("none/a.npy") + "': No such file or directory");
  EXPECT_EQ(message_of<IoError>([&] { save_npy(dir.path(), ones({2})); }),
            "cannot write '" + dir.path() + "': this is a directory, expected the name of a file");
  EXPECT_EQ(message_of<DTypeError>([&] { save_npy(dir.file("a.npy"), ones({2}, {.dtype = DType::bf16})); }),
            "save_npy: NumPy files hold no bf16; convert with .to(DType::f32)");
  EXPECT_EQ(message_of<IoError>([] { save_npy("/dev/null", ones({2})); }),
            "cannot write '/dev/null': this is a device or a pipe, expected the name of a file");
  EXPECT_THROW(save_npy(dir.file("a.npy"), Tensor()), ConfigError);
}

TEST(NpyErrors, LoadingNamesThePath) {
  const TempDir dir;
  const std::string path = dir.write("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"));
  EXPECT_EQ(message_of<IoError>([&] { load_npy(path); }),
            path + ": byte 65: the file ends early: shape [2] of f4 needs 8 bytes after the header, found 0");
  EXPECT_EQ(message_of<IoError>([&] { load_npy(path, {.max_bytes = 10}); }),
            path + ": more than the limit of 10 bytes (max_bytes)");
  EXPECT_THROW(load_npy(dir.file("none.npy")), IoError);
}

}  // namespace
}  // namespace tandem
