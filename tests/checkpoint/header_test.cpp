#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "files_in_memory.h"
#include "support/message.h"

// What a safetensors file may contain, and what is said of one that is wrong.

namespace tandem::test {
namespace {

using checkpoint::SafetensorsHeader;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
      {"w.\"\\/\n\xc3\xa9", DType::f32, {2, 3}}, {"", DType::bf16, {}}, {"e", DType::boolean, {0}}};
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
  EXPECT_THAT(refusal_of(kOne, 9), HasSubstr("1 bytes follow the last tensor, expected the end of the file"));
}

TEST(SafetensorsHeaderErrors, OtherFormatsAreGuessed) {
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(100, 'x')),
              AllOf(HasSubstr("PyTorch's .pt"), HasSubstr("save_file(torch.load('model.pt', weights_only=True)")));
  EXPECT_THAT(refusal("\x80\x02\x8a\x0a" + std::string(100, 'x')), HasSubstr("a pickle"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal("\x93NUMPY\1" + std::string(100, 'x')), HasSubstr("data::load_npy"));
  EXPECT_THAT(refusal("GGUF" + std::string(100, 'x')), HasSubstr("GGUF"));
  EXPECT_THAT(refusal("\x1f\x8b" + std::string(100, 'x')), HasSubstr("gunzip"));
}

TEST(SafetensorsHeaderErrors, TextThatIsNoJson) {
  EXPECT_THAT(refusal_of(R"({"a":)"), StartsWith("safetensors 'm', byte "));
  EXPECT_THAT(refusal_of("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of("\xef\xbb\xbf{}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal_of({"{} \0 ", 5}), HasSubstr("the header has a NUL byte"));
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("found an array in the header, expected an object"));
  EXPECT_THAT(refusal_of("null"), HasSubstr("found null"));
  EXPECT_THAT(refusal_of(std::string(50'000, '[')), HasSubstr("found an array"));
  EXPECT_THAT(refusal_of(R"({"a":{"b":{"c":{}}}})"), HasSubstr("expected dtype, shape and data_offsets, found 'b'"));
}

TEST(SafetensorsHeaderErrors, FieldsOfATensor) {
  EXPECT_THAT(refusal_of(R"({"a":1})"), HasSubstr("found a number in the header, expected an object for each name"));
  EXPECT_THAT(refusal_of(R"({"a":{}})"), HasSubstr("tensor 'a' lacks its dtype"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("tensor 'a' lacks its shape"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F33"}})"), HasSubstr("tensor 'a' has the unknown dtype 'F33'"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":5}})"), HasSubstr("found a number in the header in tensor 'a', expected a "
                                                            "dtype as text"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[2.0]}})"), HasSubstr("found 2.0"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[-2]}})"), HasSubstr("found -2"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[1e3]}})"), HasSubstr("found 1e3"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[[1]]}})"), HasSubstr("found an array"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[9223372036854775808]}})"), HasSubstr("is beyond 2^63 - 1"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[18446744073709551616]}})"), HasSubstr("in the header"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})"), HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(refusal_of(R"({"a":{"data_offsets":[0]}})"), HasSubstr("expected two data_offsets, found 1"));
  EXPECT_THAT(refusal_of(R"({"a":{"data_offsets":[0,1,2]}})"), HasSubstr("more than two data_offsets"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("tensor 'a' has two 'dtype'"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":1}})"), HasSubstr("expected texts in \"__metadata__\""));
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
              HasSubstr("two tensors are called 'a'"));
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
}

}  // namespace
}  // namespace tandem::test
