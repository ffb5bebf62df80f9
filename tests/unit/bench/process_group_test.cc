#include "bench/e2e/process/process_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "core/clock.h"

// ProcessGroup starts this program again. With these arguments the program runs one of the tests below that
// act as a child.
namespace sluice::bench {
namespace {

std::vector<std::string> child(const std::string& name) {
  return {"--gtest_also_run_disabled_tests", "--gtest_brief=1", "--gtest_filter=Child.DISABLED_" + name};
}
Nanos test_deadline() {
  return monotonic_now() + 30 * kSecond;
}

TEST(Child, DISABLED_ExitsWithSeven) {
  _exit(7);
}
TEST(Child, DISABLED_ExitsWithZero) {
  _exit(0);
}
TEST(Child, DISABLED_DiesBySignal) {
  raise(SIGKILL);
}
TEST(Child, DISABLED_Waits) {
  for (;;) pause();
}
TEST(Child, DISABLED_IgnoresSigterm) {
  signal(SIGTERM, SIG_IGN);
  if (write(STDOUT_FILENO, "x", 1) != 1) _exit(1);
  for (;;) pause();
}
TEST(Child, DISABLED_Echoes) {
  char c = 0;
  while (read(STDIN_FILENO, &c, 1) == 1) {
    if (write(STDOUT_FILENO, &c, 1) != 1) _exit(1);
  }
  _exit(0);
}

TEST(ProcessGroup, ReportsHowEachChildEnded) {
  ProcessGroup group;
  ASSERT_TRUE(group.start({.name = "seven", .arguments = child("ExitsWithSeven")}));
  auto end = group.wait(test_deadline());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code(), 7);
  EXPECT_FALSE(end->ok());
  EXPECT_NE(end->text().find("seven (pid "), std::string::npos);
  EXPECT_NE(end->text().find("exited with code 7"), std::string::npos);

  ASSERT_TRUE(group.start({.name = "killed", .arguments = child("DiesBySignal")}));
  end = group.wait(test_deadline());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code(), 1);
  EXPECT_NE(end->text().find("was killed by signal 9"), std::string::npos);

  ASSERT_TRUE(group.start({.name = "well", .arguments = child("ExitsWithZero")}));
  end = group.wait(test_deadline());
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->ok());
  EXPECT_FALSE(group.wait(monotonic_now()).has_value());
}

TEST(ProcessGroup, KillsAChildThatIgnoresSigterm) {
  ProcessGroup group;
  const auto stubborn =
      group.start({.name = "stubborn", .arguments = child("IgnoresSigterm"), .piped = true});
  ASSERT_TRUE(stubborn.has_value());
  char c = 0;
  ASSERT_EQ(read(group.output(*stubborn), &c, 1), 1);  // the child ignores SIGTERM now
  const auto ends = group.stop_all(50 * kMillisecond);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_NE(ends[0].text().find("signal 9"), std::string::npos);
}

TEST(ProcessGroup, KillsChildrenOnDestruction) {
  pid_t pid = 0;
  {
    ProcessGroup group;
    const auto waits = group.start({.name = "waits", .arguments = child("Waits")});
    ASSERT_TRUE(waits.has_value());
    pid = group.pid(*waits);
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ProcessGroup, PipesConnectToTheChild) {
  ProcessGroup group;
  const auto echo = group.start({.name = "echo", .arguments = child("Echoes"), .piped = true});
  ASSERT_TRUE(echo.has_value());
  ASSERT_EQ(write(group.input(*echo), "q", 1), 1);
  char c = 0;
  ASSERT_EQ(read(group.output(*echo), &c, 1), 1);
  EXPECT_EQ(c, 'q');
  group.close_input(*echo);
  const auto end = group.wait(test_deadline());
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->ok());
}

TEST(ProcessGroup, SigtermInterruptsTheWait) {
  ProcessGroup group;
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);  // blocked by the group, so wait() receives it
  EXPECT_FALSE(group.wait(test_deadline()).has_value());
  EXPECT_EQ(group.interrupted(), SIGTERM);
}

TEST(ProcessGroup, SigtermInterruptsTheWaitForAPipe) {
  ProcessGroup group;
  const auto echo = group.start({.name = "echo", .arguments = child("Echoes"), .piped = true});
  ASSERT_TRUE(echo.has_value());
  EXPECT_FALSE(group.wait_readable(group.output(*echo), monotonic_now() + kMillisecond))
      << "the child has no output yet";
  EXPECT_EQ(group.interrupted(), 0);
  ASSERT_EQ(write(group.input(*echo), "q", 1), 1);
  EXPECT_TRUE(group.wait_readable(group.output(*echo), test_deadline()));
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  EXPECT_FALSE(group.wait_readable(group.output(*echo), test_deadline()));
  EXPECT_EQ(group.interrupted(), SIGTERM);
}

}  // namespace
}  // namespace sluice::bench
