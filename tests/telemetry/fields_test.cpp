#include <tandem/telemetry/run_folder.h>

#include <limits>

#include <gtest/gtest.h>

namespace tandem::telemetry {
namespace {

TEST(Fields, AreAnObjectInTheirOrder) {
  EXPECT_EQ(to_json({{"b", true}, {"a", std::int64_t{3}}, {"c", 0.5}, {"d", "text"}}),
            R"({"b":true,"a":3,"c":0.5,"d":"text"})");
}

TEST(Fields, HoldListsOfNumbersAndOfText) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_json({{"interval", std::vector<double>{1.5, inf}}, {"isas", std::vector<std::string>{"avx2", "\xff"}}}),
            "{\"interval\":[1.5,null],\"isas\":[\"avx2\",\"\xEF\xBF\xBD\"]}");
}

TEST(Fields, NameTwiceKeepsTheLaterValue) { EXPECT_EQ(to_json({{"a", 1.5}, {"a", "b"}}), R"({"a":"b"})"); }

}  // namespace
}  // namespace tandem::telemetry
