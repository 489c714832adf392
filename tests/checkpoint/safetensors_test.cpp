#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "files_in_memory.h"
#include "support/message.h"
#include "support/temp_dir.h"
#include "support/thread_count.h"

// save() and load().

namespace tandem::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_equal(const Tensor& got, const Tensor& expected) {
  EXPECT_EQ(got.dtype(), expected.dtype());
  ASSERT_EQ(got.shape(), expected.shape());
  const Tensor a = got.to("cpu").contiguous();
  const Tensor b = expected.detach().to("cpu").contiguous();
  EXPECT_EQ(std::memcmp(a.raw().data(), b.raw().data(), static_cast<std::size_t>(a.numel()) * item_size(a.dtype())), 0);
}

void expect_equal(const StateDict& got, const StateDict& expected) {
  EXPECT_EQ(got.size(), expected.size());
  for (const auto& [name, value] : expected) {
    SCOPED_TRACE(name);
    expect_equal(got.at(name), value);
  }
}

// A tensor of every dtype and of every odd shape.
StateDict every_kind() {
  StateDict state;
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    const std::string type(name(dtype));
    state.set(type, arange(-2, 10).view({3, 4}).to(dtype));
    state.set(type + ".scalar", full({}, 1, {.dtype = dtype}));
    state.set(type + ".empty", zeros({0, 3}, {.dtype = dtype}));
    state.set(type + ".one", ones({1, 1, 1}, {.dtype = dtype}));
  }
  state.set("strided", arange(12).view({3, 4}).t());
  state.set("broadcast", ones({1, 3}).expand({2, 3}));
  state.set("\xc3\xa9 \"quoted\" \\ \n", ones({2}));
  state.set("", ones({1}));
  return state;
}

TEST(Safetensors, EveryKindOfTensorComesBack) {
  const TempDir folder;
  const StateDict state = every_kind();
  save(state, folder.file("a"));
  expect_equal(load(folder.file("a")), state);
  save(StateDict(), folder.file("none"));
  EXPECT_EQ(load(folder.file("none")).size(), 0U);
}

TEST(Safetensors, AMappedFileHasTheSameTensors) {
  const TempDir folder;
  StateDict state = every_kind();
  save(state, folder.file("a"));
  const std::string content = read_text(folder.file("a"));
  std::optional<SafetensorsFile> file(folder.file("a"));
  const StateDict mapped = file->map_all();
  file.reset();
  expect_equal(mapped, state);
  Tensor written = mapped.at("f32");
  written.fill_(7);
  EXPECT_EQ(read_text(folder.file("a")), content) << "writes stay in this process";
  save(StateDict({{"other", ones({100})}}), folder.file("a"));
  expect_equal(mapped.at("f64"), state.at("f64"));  // of the file that was replaced
  // Another program may have put elements at odd places.
  const std::string odd = file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                    R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},)"
                                    R"("c":{"dtype":"I16","shape":[2],"data_offsets":[9,13]}})",
                                    13);
  const SafetensorsFile unaligned(folder.write("odd", odd));
  expect_equal(unaligned.map_all(), unaligned.read_all());
}

TEST(Safetensors, EqualStatesMakeEqualFiles) {
  const TempDir folder;
  StateDict one, other;
  one.set("a", ones({2}));
  one.set("b", ones({3}, {.dtype = DType::f64}));
  other.set("b", ones({3}, {.dtype = DType::f64}));
  other.set("a", ones({2}));
  save(one, folder.file("one"));
  save(other, folder.file("other"));
  EXPECT_EQ(read_text(folder.file("one")), read_text(folder.file("other")));
}

TEST(Safetensors, AModelIsLoadedIntoAnother) {
  const TempDir folder;
  struct Net : nn::Module<Net> {
    nn::Linear fc = child("fc", nn::Linear(4, 3));
    nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(3));
  } net, other;
  save(net, folder.file("model.safetensors"));
  const nn::LoadReport report = load(other, folder.file("model.safetensors"));
  EXPECT_THAT(report.missing, ElementsAre());
  expect_equal(other.state_dict(), net.state_dict());

  nn::Linear small(4, 3);
  EXPECT_THAT(message_of<ConfigError>([&] { load(small, folder.file("model.safetensors")); }),
              HasSubstr("nothing was loaded"));
}

TEST(Safetensors, AnOptimisersStateComesBack) {
  const TempDir folder;
  nn::Linear fc(3, 2);
  optim::AdamW adam(fc.parameters(), {.lr = 0.1});
  fc(ones({2, 3})).sum().backward();
  adam.step();
  save(adam.state_dict(), folder.file("adam"));
  expect_equal(load(folder.file("adam")), adam.state_dict());
}

TEST(Safetensors, AFileTellsWhatItHolds) {
  const TempDir folder;
  StateDict state;
  state.set("w", ones({2, 3}, {.dtype = DType::bf16}));
  state.set("n", full({}, 7, {.dtype = DType::i64}));
  save(state, folder.file("a"), {.metadata = {{"step", "12"}}});
  const SafetensorsFile file(folder.file("a"));
  const auto tensors = file.tensors();
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "n");
  EXPECT_EQ(tensors[0].dtype, "I64");
  EXPECT_EQ(tensors[1].shape, Shape({2, 3}));
  EXPECT_EQ(tensors[1].bytes, 12U);
  EXPECT_EQ(tensors[1].hash.size(), 32U);
  EXPECT_TRUE(file.has_hashes());
  EXPECT_EQ(file.metadata()[0], (std::pair<std::string, std::string>("format", "pt")));
  ASSERT_EQ(file.metadata().size(), 2U);
  EXPECT_EQ(file.metadata()[1], (std::pair<std::string, std::string>("step", "12")));
  expect_equal(file.read("n"), state.at("n"));
  EXPECT_THAT(message_of<ConfigError>([&] { file.read("x"); }), HasSubstr("there is no tensor 'x'"));
}

// As Python writes the tensors and the metadata of a file that it has read.
TEST(Safetensors, AnotherProgramMayChangeTheOrder) {
  const TempDir folder;
  StateDict state;
  state.set("a", ones({2}));
  state.set("b", zeros({3}));
  save(state, folder.file("ours"), {.metadata = {{"epoch", "3"}}});
  const std::string ours = read_text(folder.file("ours"));
  checkpoint::Metadata metadata = header_in(ours).metadata();
  std::reverse(metadata.begin(), metadata.end());
  const auto theirs = [&] {
    std::string file = checkpoint::safetensors_header({{"b", DType::f32, {3}}, {"a", DType::f32, {2}}}, metadata);
    for (const char* name : {"b", "a"}) {
      const Tensor& value = state.at(name);
      file.append(static_cast<const char*>(value.raw().data()), static_cast<std::size_t>(value.numel()) * 4);
    }
    return folder.write("theirs", file);
  };
  expect_equal(load(theirs()), state);
  SafetensorsFile(theirs()).verify();
  metadata.emplace_back("added", "later");
  const SafetensorsFile changed(theirs());
  EXPECT_THAT(message_of<IoError>([&] { changed.verify(); }), HasSubstr("another program has changed its tensors or"));
  EXPECT_THAT(message_of<IoError>([&] { changed.read("a"); }), HasSubstr("read_all(false) reads it all the same"));
  expect_equal(changed.read_all(false), state);
}

TEST(Safetensors, AFileIsCopiedWithItsMetadata) {
  const TempDir folder;
  save(every_kind(), folder.file("a"), {.metadata = {{"format", "np"}, {"epoch", "3"}}});
  const SafetensorsFile file(folder.file("a"));
  save(file.read_all(), folder.file("b"), {.metadata = file.metadata()});
  EXPECT_EQ(read_text(folder.file("a")), read_text(folder.file("b")));
}

// As safetensors.torch.save_model and load_model do.
TEST(Safetensors, ATiedWeightIsWrittenOnce) {
  const TempDir folder;
  struct Plain : nn::Module<Plain> {
    Parameter a = parameter("a", randn({2}));
    Parameter b = parameter("b", a);
  } net, other;
  save(net, folder.file("net"));
  const auto tensors = SafetensorsFile(folder.file("net")).tensors();
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "a");
  load(other, folder.file("net"));
  expect_equal(other.b, net.a);
}

TEST(Safetensors, AFileKeepsItsPermissions) {
  const TempDir folder;
  StateDict state;
  state.set("w", ones({2}));
  save(state, folder.file("a"));
  std::filesystem::permissions(folder.file("a"), std::filesystem::perms(0600));
  save(state, folder.file("a"));
  EXPECT_EQ(std::filesystem::status(folder.file("a")).permissions(), std::filesystem::perms(0600));
}

// Types that tandem lacks become the smallest that holds their values.
TEST(Safetensors, ForeignTypesAreWidened) {
  const TempDir folder;
  const auto read = [&](const char* type, std::string_view bytes, int count) {
    const std::string file = file_with(fmt::format(R"({{"a":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                                                   type, count, bytes.size())) +
                             std::string(bytes);
    return load_from_memory(file).at("a");
  };
  EXPECT_THAT(read("I8", {"\xff\x05", 2}, 2).to_vector<std::int32_t>(), ElementsAre(-1, 5));
  EXPECT_THAT(read("I16", {"\xfe\xff\x00\x01", 4}, 2).to_vector<std::int32_t>(), ElementsAre(-2, 256));
  EXPECT_THAT(read("U16", {"\xfe\xff", 2}, 1).to_vector<std::int32_t>(), ElementsAre(65534));
  EXPECT_THAT(read("U32", {"\xff\xff\xff\xff", 4}, 1).to_vector<std::int64_t>(), ElementsAre(4294967295));
  EXPECT_THAT(read("U64", {"\x01\0\0\0\0\0\0\x70", 8}, 1).to_vector<std::int64_t>(), ElementsAre(0x7000000000000001));
  EXPECT_THAT(read("BOOL", {"\0\x02", 2}, 2).to(DType::i32).to_vector<std::int32_t>(), ElementsAre(0, 1));
  EXPECT_THAT(read("F8_E5M2", {"\x3c\xc0\x01\x7b", 4}, 4).to(DType::f32).to_vector<float>(),
              ElementsAre(1.0F, -2.0F, 0x1p-16F, 57344.0F));
  EXPECT_THAT(read("F8_E4M3", {"\x38\xc0\x01\x7e", 4}, 4).to(DType::f32).to_vector<float>(),
              ElementsAre(1.0F, -2.0F, 0x1p-9F, 448.0F));
  EXPECT_TRUE(std::isnan(read("F8_E4M3", "\x7f", 1).to(DType::f32).to_vector<float>()[0]));
  EXPECT_THAT(message_of<IoError>([&] { read("U64", {"\x01\0\0\0\0\0\0\x80", 8}, 1); }),
              HasSubstr("tensor 'a' has 9223372036854775809, which is too large for i64"));
  EXPECT_THAT(message_of<IoError>([&] { read("C64", {"\0\0\0\0\0\0\0\0", 8}, 1); }),
              HasSubstr("tensor 'a' is C64, a type that tandem does not have"));
}

TEST(SafetensorsErrors, NameTheFile) {
  const TempDir folder;
  EXPECT_EQ(message_of<IoError>([] { load("absent.safetensors"); }),
            "cannot open 'absent.safetensors': No such file or directory (current directory: " +
                std::filesystem::current_path().string() + ")");
  EXPECT_THAT(message_of<IoError>([&] { load(folder.path()); }), HasSubstr("this is a folder, expected a file"));
  EXPECT_THAT(message_of<IoError>([] { load("/dev/zero"); }), HasSubstr("this is a device or a pipe"));
  StateDict state;
  state.set("undefined", Tensor());
  EXPECT_EQ(message_of<ConfigError>([&] { save(state, folder.file("a")); }),
            "save: the tensor 'undefined' is undefined");
  EXPECT_FALSE(std::filesystem::exists(folder.file("a")));
  EXPECT_EQ(
      message_of<ConfigError>([&] { save(StateDict(), folder.file("a"), {.metadata = {{"k", "1"}, {"k", "2"}}}); }),
      "save: the metadata 'k' is given twice");
  EXPECT_THAT(message_of<ConfigError>([&] { save(StateDict(), folder.file("a"), {.metadata = {{"tandem.x", "1"}}}); }),
              HasSubstr("begins with 'tandem.', as only tandem's own does"));
}

// Every bit, and every length: no flip is read as if nothing had happened.
TEST(SafetensorsErrors, EveryDamageIsSeen) {
  const TempDir folder;
  const std::int64_t large = IS_SANITIZED ? 256 : 16'000;
  const ThreadCount one(1);  // waking others would take longer than the work
  StateDict state;
  state.set("weight", arange(large).to(DType::f32));
  state.set("bias", ones({3}, {.dtype = DType::bf16}));
  state.set("steps", full({}, 12, {.dtype = DType::i64}));
  save(state, folder.file("a"), {.metadata = {{"epoch", "3"}}});
  std::string file = read_text(folder.file("a"));
  ASSERT_GE(file.size(), static_cast<std::size_t>(4 * large));
  const auto is_refused = [&](std::string_view bytes) {
    try {
      load_from_memory(bytes);
      return false;
    } catch (const IoError& error) {
      return std::string_view(error.what()).starts_with("safetensors 'm'");
    }
  };
  EXPECT_FALSE(is_refused(file));
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    const auto mask = static_cast<char>(1U << bit % 8);
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ mask);
    EXPECT_TRUE(is_refused(file)) << "bit " << bit;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ mask);
  }
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_TRUE(is_refused(std::string_view(file).substr(0, length))) << length;
  }
}

}  // namespace
}  // namespace tandem::test
