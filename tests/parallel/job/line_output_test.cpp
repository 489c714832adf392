#include <fcntl.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

#include <tandem/parallel/job/line_output.h>

namespace tandem::parallel {
namespace {

using Lines = std::deque<std::string>;

TEST(LineStream, CutsAnywhereGiveTheSameLines) {
  const std::string text = "one\n\ntwo three\nno end";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineStream stream("[4] ", 2);
    std::string out = stream.feed(text.substr(0, cut));
    out += stream.feed(text.substr(cut));
    EXPECT_EQ(out, "[4] one\n[4] \n[4] two three\n");
    EXPECT_EQ(stream.finish(), "[4] no end\n");
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(stream.last_lines(), (Lines{"two three", "no end"}));
  }
}

TEST(LineStream, ALineIsWholeUpToALimit) {
  LineStream stream("> ", 1);
  const std::string line(kMaxLine, 'x');
  EXPECT_EQ(stream.feed(line), "");
  EXPECT_EQ(stream.feed("\nshort\n"), "> " + line + "\n> short\n");
  EXPECT_EQ(stream.feed(line + "yz"), "> " + line + "\n");
  EXPECT_EQ(stream.feed("\n"), "> yz\n");
  LineStream remembers("", 1);
  remembers.feed(line + "\n");
  EXPECT_EQ(remembers.last_lines(), Lines{std::string(400, 'x')});
}

TEST(OutputQueue, WritesNoMoreThanGoesWithoutWaitingAndLosesNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  OutputQueue queue;
  std::string expected;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    expected += line;
    queue.push(ends[1], line);
  }
  queue.write_some();  // returns although nobody reads the output
  EXPECT_GT(queue.size(), 0U);
  EXPECT_EQ(queue.next(), ends[1]);
  std::string got(expected.size(), '\0');
  for (std::size_t at = 0; at < got.size();) {
    const ssize_t count = ::read(ends[0], got.data() + at, got.size() - at);
    ASSERT_GT(count, 0);
    at += static_cast<std::size_t>(count);
    queue.write_some();
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_EQ(queue.next(), -1);
  EXPECT_EQ(queue.error(), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(OutputQueue, WhatCannotBeWrittenIsDroppedAndRemembered) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  OutputQueue queue;
  queue.push(full, "a\n");
  queue.push(null, "b\n");
  queue.flush(1);
  EXPECT_EQ(queue.error(), ENOSPC);
  EXPECT_EQ(queue.size(), 0U);
  queue.push(full, "c\n");
  EXPECT_EQ(queue.next(), -1);
  ::close(full);
  ::close(null);
}

}  // namespace
}  // namespace tandem::parallel
