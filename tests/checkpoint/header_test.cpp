#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "files_in_memory.h"
#include "support/message.h"

// These tests say what a safetensors file may contain, and read the errors about those that are wrong.

namespace tandem::test {
namespace {

using checkpoint::SafetensorsHeader;
using ::testing::HasSubstr;

std::string refusal(const std::string& file) {
  return message_of<IoError>([&] { header_in(file); });
}
std::string refusal_of(std::string_view json, std::size_t data = 0) { return refusal(file_with(json, data)); }

constexpr const char* kOne = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(SafetensorsHeader, HasTensorsInTheOrderOfTheirData) {
  const SafetensorsHeader header = header_in(file_with(
      R"( {"b" : {"data_offsets":[8,9],"dtype":"U8","shape":[]}, "__metadata__":{"k":"v","":""},
          "a":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]}, "c":{"dtype":"F4","shape":[2,3],"data_offsets":[9,12]}}  )",
      12));
  ASSERT_EQ(header.size(), 3U);
  EXPECT_EQ(header.entry(0).name, "a");
  EXPECT_EQ(header.entry(1).name, "b");
  EXPECT_EQ(header.entry(2).type->name, "F4");
  EXPECT_EQ(header.shape(header.entry(0)), Shape({1, 1}));
  EXPECT_EQ(header.shape(header.entry(1)), Shape());
  EXPECT_EQ(header.find("b"), 1U);
  EXPECT_EQ(header.find("bb"), std::nullopt);
  EXPECT_EQ(header.metadata(), (checkpoint::Metadata{{"k", "v"}, {"", ""}}));
}

TEST(SafetensorsHeader, MayHaveNoTensorsAndEmptyOnes) {
  EXPECT_EQ(header_in(file_with("{}")).size(), 0U);
  EXPECT_EQ(header_in(file_with(R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},
                                     "b":{"dtype":"I64","shape":[3,0],"data_offsets":[0,0]}})"))
                .size(),
            2U);
}

TEST(SafetensorsHeader, ThatIsWrittenIsReadAgain) {
  const std::vector<checkpoint::StoredTensor> tensors{
      {"w.\"\\/\n\xc3\xa9", DType::f32, {2, 3}}, {"", DType::bf16, {}}, {"e", DType::boolean, {0, 300, 70000}}};
  const std::string header = checkpoint::safetensors_header(tensors, {{"key", "\x01 text"}});
  EXPECT_EQ(header.size() % 8, 0U);
  const SafetensorsHeader read = header_in(header + std::string(26, '\0'));
  ASSERT_EQ(read.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(read.find(tensors[i].name).has_value());
  }
  EXPECT_EQ(read.metadata(), (checkpoint::Metadata{{"key", "\x01 text"}}));
}

TEST(SafetensorsHeaderErrors, FilesThatAreCutOff) {
  EXPECT_EQ(refusal(""), "safetensors 'm': the file has 0 bytes, and the shortest has 10: it is empty or cut off");
  EXPECT_THAT(refusal(file_with(kOne, 8).substr(0, 30)),
              HasSubstr("byte 0 says that the header has 54 bytes; expected at most 22: this is another format, or the "
                        "file is cut off"));
  EXPECT_THAT(refusal_of(kOne, 7), HasSubstr("tensor 'a' ends at byte 8 of the data, and the file has 7: it is cut "
                                             "off"));
  EXPECT_THAT(refusal_of(kOne, 9), HasSubstr("1 bytes too many follow the last tensor, expected the end of the file"));
}

TEST(SafetensorsHeaderErrors, OtherFormatsAreGuessed) {
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(100, 'x')),
              AllOf(HasSubstr("PyTorch's .pt"), HasSubstr("save_file(torch.load('FILE.pt', weights_only=True)")));
  EXPECT_THAT(refusal("\x80\x03\x8a\x0a" + std::string(100, 'x')), HasSubstr("a pickle"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal("\x93NUMPY\1" + std::string(100, 'x')), HasSubstr("data::load_npy"));
  EXPECT_THAT(refusal("GGUF" + std::string(100, 'x')), HasSubstr("GGUF"));
  EXPECT_THAT(refusal("\x1f\x8b" + std::string(100, 'x')), HasSubstr("gunzip"));
  EXPECT_THAT(refusal("{\n  \"metadata\": {}, \"weight_map\": {}}"), HasSubstr("a model in several files"));
}

TEST(SafetensorsHeaderErrors, TextThatIsNotJson) {
  EXPECT_EQ(refusal_of(R"({"a":)"),
            "safetensors 'm', byte 13: expected an object with dtype, shape and data_offsets, found the end of the "
            "header: the header is damaged, or another program wrote it wrongly");
  EXPECT_THAT(refusal_of("{} x"), HasSubstr("byte 11: expected the end of the header, found 'x'"));
  EXPECT_THAT(refusal_of({"{} \0 ", 5}), HasSubstr("expected the end of the header, found the byte 0x00"));
  EXPECT_THAT(refusal_of("\xef\xbb\xbf{}"), HasSubstr("expected '{', with which a header begins, found the byte 0xef"));
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("expected '{', with which a header begins, found '['"));
  EXPECT_THAT(refusal_of("null"), HasSubstr("found 'n'"));
  EXPECT_THAT(refusal_of("{,}"), HasSubstr("expected a name in quotes, found ','"));
  EXPECT_THAT(refusal_of(R"({"a" 1})"), HasSubstr("expected ':', found '1'"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{} "a":1})"), HasSubstr("expected ',' or '}', found '\"'"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[1;]}})"), HasSubstr("expected ',' or ']', found ';'"));
  EXPECT_THAT(refusal_of(std::string(50'000, '[')), HasSubstr("found '['"));
  EXPECT_THAT(refusal_of(R"({"a":{"b":{"c":{}}}})"),
              HasSubstr("tensor 'a' has the field 'b', expected dtype, shape and data_offsets once each"));
}

TEST(SafetensorsHeaderErrors, TextsThatAreNotUtf8) {
  for (const std::string text :
       {"\xff", "\xc1\x81", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3", "\x80"}) {
    EXPECT_THAT(refusal_of("{\"" + text + "\":1}"), HasSubstr("expected UTF-8, found "))
        << testing::PrintToString(text);
  }
  EXPECT_THAT(refusal_of("{\"a\nb\":1}"), HasSubstr("expected a character of a text, or its closing quote"));
  EXPECT_THAT(refusal_of(R"({"\x":1})"), HasSubstr("expected one of JSON's escapes, found 'x'"));
  EXPECT_THAT(refusal_of(R"({"\u00g0":1})"), HasSubstr("expected four hexadecimal digits, found 'g'"));
  EXPECT_THAT(refusal_of(R"({"\ud800":1})"), HasSubstr("expected the second half of a surrogate pair"));
  EXPECT_THAT(refusal_of(R"({"\udc00":1})"), HasSubstr("expected the first half of a surrogate pair"));
}

TEST(SafetensorsHeader, EscapesAreDecoded) {
  const SafetensorsHeader header =
      header_in(file_with(R"({"__metadata__":{"\"\\\/\b\f\n\r\t":"\u0041\u00e9\u20ac\ud83d\ude00"}})"));
  EXPECT_EQ(header.metadata(), (checkpoint::Metadata{{"\"\\/\b\f\n\r\t", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}}));
  // Texts longer than the pieces in which a file is read.
  const std::string text(50'000, 'x');
  EXPECT_EQ(header_in(file_with("{\"__metadata__\":{\"k\":\"" + text + "\"}}")).metadata()[0].second, text);
}

TEST(SafetensorsHeaderErrors, FieldsOfATensor) {
  EXPECT_THAT(refusal_of(R"({"a":1})"), HasSubstr("expected an object with dtype, shape and data_offsets, found '1'"));
  EXPECT_THAT(refusal_of(R"({"a":{}})"), HasSubstr("tensor 'a' lacks its dtype"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("tensor 'a' lacks its shape"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F33"}})"), HasSubstr("tensor 'a' has the unknown dtype 'F33'"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":5}})"), HasSubstr("expected a dtype in quotes, found '5'"));
  for (const char* number : {"2.0", "1e3", "01"}) {
    EXPECT_THAT(refusal_of(fmt::format(R"({{"a":{{"shape":[{}]}}}})", number)),
                HasSubstr("expected a whole number, without leading zeros, a fraction and an exponent"));
  }
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[-2]}})"), HasSubstr("expected a whole number from 0 on, found '-'"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[[1]]}})"), HasSubstr("expected a whole number from 0 on, found '['"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[9223372036854775808]}})"), HasSubstr("a number is beyond 2^63 - 1"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[18446744073709551616]}})"), HasSubstr("a number is beyond 2^63 - 1"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})"), HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0]}})"),
              HasSubstr("tensor 'a' lacks its two data_offsets"));
  EXPECT_THAT(refusal_of(R"({"a":{"data_offsets":[0,1,2]}})"), HasSubstr("more than two data_offsets"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("tensor 'a' has two 'dtype'"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":1}})"), HasSubstr("expected a text of \"__metadata__\", found '1'"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":"1","a":"2"}})"), HasSubstr("\"__metadata__\" has 'a' twice"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("there are two \"__metadata__\""));
}

TEST(SafetensorsHeaderErrors, TensorsThatDoNotCoverTheData) {
  const auto two = [](const char* first, const char* second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                       first, second);
  };
  EXPECT_THAT(refusal_of(two("[0,4]", "[5,9]"), 9), HasSubstr("tensor 'b' has data_offsets [5, 9], expected it to "
                                                              "begin at 4"));
  EXPECT_THAT(refusal_of(two("[0,4]", "[3,7]"), 7), HasSubstr("tensor 'b' has data_offsets [3, 7]"));
  EXPECT_THAT(refusal_of(two("[1,5]", "[5,9]"), 9), HasSubstr("expected it to begin at 0"));
  EXPECT_THAT(refusal_of(two("[4,0]", "[4,8]"), 8), HasSubstr("data_offsets [4, 0]"));
  EXPECT_THAT(refusal_of(two("[0,4]", "[4,9]"), 9), HasSubstr("tensor 'b' is U8 [4], which does not fit into its 5 "
                                                              "bytes"));
  // The product wraps around to the right number of bytes.
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
              HasSubstr("does not fit into its 0 bytes"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), HasSubstr("does not fit"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         2),
              HasSubstr("tensor 'a' is there twice"));
}

TEST(SafetensorsHeaderErrors, NamesThatCannotBeWritten) {
  using checkpoint::check_names;
  using checkpoint::safetensors_header;
  EXPECT_EQ(message_of<ConfigError>([] { check_names({{"a", DType::f32, {}}, {"a", DType::f32, {}}}); }),
            "safetensors: two tensors are called 'a'");
  EXPECT_THAT(message_of<ConfigError>([] { check_names({{"__metadata__", DType::f32, {}}}); }),
              HasSubstr("no tensor can be called '__metadata__'"));
  EXPECT_THAT(message_of<ConfigError>([] { safetensors_header({{"\xff", DType::f32, {}}}, {}); }),
              HasSubstr("is not UTF-8"));
  const checkpoint::Metadata many(5000, {"k", "v"});
  EXPECT_THAT(message_of<ConfigError>([&] { safetensors_header({}, many); }),
              HasSubstr("the metadata has 5000 texts, and a file holds at most 4096"));
}

}  // namespace
}  // namespace tandem::test
