#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "idx_files.h"
#include "samples.h"

namespace example {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ImageSamples : public Samples {
 protected:
  Outcome resnet(const Arguments& arguments) const { return run_program(RESNET_PROGRAM, arguments, dir_.path()); }
  Outcome autoencoder(const Arguments& arguments) const {
    return run_program(AUTOENCODER_PROGRAM, arguments, dir_.path());
  }
};

// A file of CIFAR-10: `count` images of one colour, which the class decides.
std::string cifar(int count) {
  std::string records;
  for (int i = 0; i < count; ++i) {
    records.push_back(static_cast<char>(i % 10));
    for (int colour = 0; colour < 3; ++colour) {
      records.append(32 * 32, static_cast<char>((i % 10 + 1) * (colour + 7)));
    }
  }
  return records;
}

TEST_F(ImageSamples, ResNetLearnsTheBundledDigits) {
  const Arguments arguments{"--blocks", "1",       "--epochs", "1",     "--batch-size",
                            "32",       "--quiet", "--json",   "--out", "run"};
  const Outcome outcome = resnet(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, StartsWith("test accuracy: "));
  EXPECT_GT(parse_record(lines_of(outcome.out).back()).number("test_accuracy"), 0.8);
  EXPECT_THAT(text("run/resnet.svg"), HasSubstr("Rows: the class"));
  EXPECT_THAT(metrics("run"), SizeIs(1));
  // A run that is over has its result again.
  EXPECT_EQ(resnet(arguments).out, outcome.out);
}

TEST_F(ImageSamples, ResNetReadsCifar) {
  write("data_batch_1.bin", cifar(10));
  expect_error(resnet({"--data", "."}),
               "./data_batch_2.bin: cannot be opened; CIFAR-10 has data_batch_1.bin to data_batch_5.bin and "
               "test_batch.bin");
  for (int i = 1; i <= 5; ++i) {
    write("data_batch_" + std::to_string(i) + ".bin", cifar(10));
  }
  write("test_batch.bin", cifar(20));
  const Arguments arguments{"--data", ".", "--blocks", "1", "--epochs", "1", "--batch-size", "10", "--out", "run"};
  const Outcome outcome = resnet(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("epoch 1/1  test accuracy"));
  EXPECT_THAT(text("run/resnet.svg"), HasSubstr(">plane<"));

  write("data_batch_3.bin", cifar(10).substr(1));
  expect_error(resnet(arguments),
               "./data_batch_3.bin: expected a file of CIFAR-10 with 3073 bytes for each image, got 30729 bytes");
  write("data_batch_3.bin", '\x0a' + cifar(10).substr(1));
  expect_error(resnet(arguments), "./data_batch_3.bin: expected classes below 10, got 10; CIFAR-100 is not read");
}

TEST_F(ImageSamples, AutoencoderDrawsTheBundledDigits) {
  const Arguments arguments{"--epochs", "1", "--batch-size", "16", "--quiet", "--json", "--out", "run"};
  const Outcome outcome = autoencoder(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, StartsWith("test error: "));
  const Record result = parse_record(lines_of(outcome.out).back());
  EXPECT_LT(result.number("test_error"), 0.5 * result.number("mean_digit_error"));
  EXPECT_THAT(text("run/autoencoder.svg"), HasSubstr("Test images"));
  EXPECT_THAT(metrics("run"), SizeIs(1));
  EXPECT_EQ(autoencoder(arguments).out, outcome.out);
}

TEST_F(ImageSamples, HelpFitsEightyColumnsAndHasExamples) {
  for (const Outcome& outcome : {resnet({"--help"}), autoencoder({"--help"})}) {
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("Examples:"));
    for (const std::string& line : lines_of(outcome.out)) {
      EXPECT_LE(line.size(), 80U) << line;
    }
  }
}

TEST_F(ImageSamples, RefuseWhatTheyCannotUse) {
  const std::string nowhere = "--data 'nowhere': not a folder; expected one with MNIST-style IDX files";
  expect_error(resnet({"--data", "nowhere"}), nowhere);
  expect_error(autoencoder({"--data", "nowhere"}), nowhere);
  EXPECT_EQ(resnet({"--blocks", "0"}).exit_code, 2);
  EXPECT_EQ(autoencoder({"--code", "0"}).exit_code, 2);
  write("t10k-images-idx3-ubyte", images(30));
  write("t10k-labels-idx1-ubyte", labels(30));
  expect_error(autoencoder({"--data", "."}), "--data: images must have 28x28 or 8x8 pixels, got 9 of them");
}

}  // namespace
}  // namespace example
