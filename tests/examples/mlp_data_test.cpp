#include "samples.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "idx_files.h"

// Tests of mlp --data DIR with MNIST's files, valid and damaged.

namespace example {
namespace {

using ::testing::HasSubstr;

class MlpData : public Samples {
 protected:
  MlpData() { std::filesystem::create_directory(file("d")); }

  void write_gz(const std::string& name, const std::string& content) const {
    const gzFile out = ::gzopen(file(name).c_str(), "wb");
    ::gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
    ::gzclose(out);
  }

  void write_train() const {
    write("d/train-images-idx3-ubyte", images(60));
    write("d/train-labels-idx1-ubyte", labels(60));
  }
  void write_test() const {
    write("d/t10k-images-idx3-ubyte", images(30));
    write("d/t10k-labels-idx1-ubyte", labels(30));
  }

  Outcome train(const Arguments& more = {}) const {
    return mlp(with({"--data", "d", "--epochs", "2", "--hidden", "8", "--batch-size", "5"}, more));
  }
  void expect_refused(const std::string& text) const { expect_error(train({"--quiet", "--out", "run"}), text); }
};

TEST_F(MlpData, FourFilesTrainAndTest) {
  write_train();
  write_test();
  const Outcome outcome = train({"--out", "plain"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("d: 60 to train, 30 to test\n"));
}

TEST_F(MlpData, PackedOrDottedFilesAreReadAlike) {
  write_train();
  write_test();
  EXPECT_EQ(train({"--out", "plain"}).exit_code, 0);
  std::filesystem::remove_all(file("d"));
  std::filesystem::create_directory(file("d"));
  write_gz("d/train-images-idx3-ubyte.gz", images(60));
  write_gz("d/train-labels.idx1-ubyte.gz", labels(60));
  write("d/t10k-images.idx3-ubyte", images(30));
  write_gz("d/t10k-labels-idx1-ubyte", labels(30));  // the content shows that it is compressed
  EXPECT_EQ(train({"--out", "packed"}).exit_code, 0);
  EXPECT_EQ(metrics("packed"), metrics("plain"));
}

TEST_F(MlpData, TestFilesAloneAreSplit) {
  write_test();
  const Outcome outcome = train();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("d (t10k files only: the first 27 train): 27 to train, 3 to test\n"));
}

TEST_F(MlpData, ClassesNeedNotBeTen) {
  write_test();
  std::string classes = labels(30);
  classes.back() = '\xc8';
  write("d/t10k-labels-idx1-ubyte", classes);
  EXPECT_EQ(train({"--quiet"}).exit_code, 0) << "class 200, seen in the test part only";
}

TEST_F(MlpData, ImagesOfOneShadeAreTrainedOn) {
  write("d/t10k-images-idx3-ubyte", idx({30, 2, 2}, std::string(120, '\0')));
  write("d/t10k-labels-idx1-ubyte", labels(30));
  for (const char* scaling : {"standard", "unit"}) {
    const Outcome outcome = train({"--scaling", scaling, "--quiet"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST_F(MlpData, FolderThatIsNotThereOrIsNone) {
  expect_error(mlp({"--data", "nowhere"}), "--data 'nowhere': not a folder; expected one with MNIST-style IDX files");
  write("digits.csv", "1,2\n");
  expect_error(mlp({"--data", "digits.csv"}),
               "--data 'digits.csv': not a folder; expected one with MNIST-style IDX files");
}

TEST_F(MlpData, MissingFilesAreNamed) {
  const std::string expected =
      "--data 'd': expected t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (.gz or not), and the same for train";
  expect_refused(expected);
  write_train();
  expect_refused(expected);
  write("d/t10k-images-idx3-ubyte", images(30));
  expect_refused(expected);
  write_test();
  std::filesystem::remove(file("d/train-labels-idx1-ubyte"));
  expect_refused("--data 'd': there are train-images, but no train-labels");
  EXPECT_FALSE(std::filesystem::exists(file("run")));
}

TEST_F(MlpData, BrokenFilesAreNamedWithTheByte) {
  write_test();
  write("d/t10k-images-idx3-ubyte", "");
  expect_refused("d/t10k-images-idx3-ubyte: the file is empty");
  write("d/t10k-images-idx3-ubyte", images(30).substr(0, 100));
  expect_refused(
      "d/t10k-images-idx3-ubyte: byte 100: the file ends early: sizes [30, 3, 3] of u8 need 270 bytes after the "
      "header, found 84");
  write("d/t10k-images-idx3-ubyte", images(30) + "x");
  expect_refused(
      "d/t10k-images-idx3-ubyte: byte 286: too many bytes: sizes [30, 3, 3] of u8 need 270 bytes after the header, "
      "and more follow");
  std::string magic = images(30);
  magic[0] = 'P';
  write("d/t10k-images-idx3-ubyte", magic);
  expect_refused(
      "d/t10k-images-idx3-ubyte: not an IDX file: its first bytes are [50 00 08 03], expected [00 00], a type code and "
      "the number of dimensions");
  std::string type = images(30);
  type[2] = 7;
  write("d/t10k-images-idx3-ubyte", type);
  expect_refused(
      "d/t10k-images-idx3-ubyte: byte 2: unknown element type 0x07; expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d "
      "(f32) or 0e (f64)");
  write("d/t10k-images-idx3-ubyte", idx({0, 3, 3}, ""));
  expect_refused("d/t10k-images-idx3-ubyte: byte 4: size 0 in dimension 0: the file holds no data");
  write("d/t10k-images-idx3-ubyte", idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc"));
  expect_refused(
      "d/t10k-images-idx3-ubyte: byte 4: sizes [4294967295, 4294967295, 4294967295] are more than can be counted; the "
      "header is corrupt");
}

TEST_F(MlpData, BrokenGzipDataIsNamedWithTheByte) {
  write_test();
  std::filesystem::remove(file("d/t10k-images-idx3-ubyte"));
  write_gz("d/t10k-images-idx3-ubyte.gz", images(30));
  const std::string packed = text("d/t10k-images-idx3-ubyte.gz");
  write("d/t10k-images-idx3-ubyte.gz", packed.substr(0, packed.size() / 2));
  expect_refused(fmt::format("d/t10k-images-idx3-ubyte.gz: byte {}: the gzip data ends early; the file is truncated",
                             packed.size() / 2));
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // damages the checksum
  write("d/t10k-images-idx3-ubyte.gz", damaged);
  expect_refused(
      fmt::format("d/t10k-images-idx3-ubyte.gz: byte {}: corrupt gzip data: incorrect data check", packed.size() - 4));
}

TEST_F(MlpData, FilesThatDoNotFitTogether) {
  write_test();
  write("d/t10k-labels-idx1-ubyte", labels(29));
  expect_refused("d/t10k-labels-idx1-ubyte: 29 labels, but d/t10k-images-idx3-ubyte has 30 images");
  write("d/t10k-labels-idx1-ubyte", images(30));
  expect_refused("d/t10k-labels-idx1-ubyte: expected one unsigned byte a label, got u8 [30, 3, 3]");
  write("d/t10k-labels-idx1-ubyte", idx({30}, std::string(30, '\xff'), 0x09));  // signed bytes: class -1
  expect_refused("d/t10k-labels-idx1-ubyte: expected one unsigned byte a label, got i32 [30]");
  write("d/t10k-labels-idx1-ubyte", labels(30));
  write("d/t10k-images-idx3-ubyte", labels(30));
  expect_refused("d/t10k-images-idx3-ubyte: expected images [count, rows, columns], got [30]");
}

TEST_F(MlpData, TrainAndTestImagesDifferInSize) {
  write_test();
  write("d/train-images-idx3-ubyte", idx({30, 2, 2}, std::string(120, '\1')));
  write("d/train-labels-idx1-ubyte", labels(30));
  expect_refused("d/train-images-idx3-ubyte: 4 pixels an image, but 9 in d/t10k-images-idx3-ubyte");
}

TEST_F(MlpData, TooFewImages) {
  write("d/t10k-images-idx3-ubyte", images(1));
  write("d/t10k-labels-idx1-ubyte", labels(1));
  expect_refused("d/t10k-images-idx3-ubyte: too few images (1): the first nine tenths train, the rest tests");
  write_test();
  expect_error(train({"--batch-size", "28"}),
               "--batch-size 28 is larger than the training part (27 samples); choose at most that");
}

}  // namespace
}  // namespace example
