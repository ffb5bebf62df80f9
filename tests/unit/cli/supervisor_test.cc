#include "cli/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>

#include "core/clock.h"
#include "transport/tcp/socket.h"

namespace sluice::cli {
namespace {

constexpr Nanos kPeriod = 2 * kSecond;

// What systemd is to a service: a socket and a period in the environment.
class WatchdogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    heard_ = transport::tcp::Socket(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    // An abstract name that the kernel picks: unix(7), autobind.
    ASSERT_EQ(bind(heard_.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any.sun_family), 0);
    sockaddr_un mine{};
    socklen_t size = sizeof mine;
    ASSERT_EQ(getsockname(heard_.fd(), reinterpret_cast<sockaddr*>(&mine), &size), 0);
    const std::string name(mine.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ASSERT_EQ(setsockopt(heard_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
    setenv("WATCHDOG_USEC", std::to_string(kPeriod / kMicrosecond).c_str(), 1);
    unsetenv("WATCHDOG_PID");
    manager_.emplace();
    ASSERT_EQ(manager_->watchdog_period(), kPeriod);
  }

  // When the next was heard.
  Nanos next_beat() {
    std::string text(64, '\0');
    const ssize_t size = recv(heard_.fd(), text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    EXPECT_EQ(text, "WATCHDOG=1");
    return monotonic_now();
  }

  transport::tcp::Socket heard_;
  std::optional<Supervisor> manager_;
};

TEST_F(WatchdogTest, OneBeatLeftOutIsNotFatal) {
  std::atomic<int> asked = 0;
  const Watchdog watchdog(*manager_, [&asked] { return ++asked != 2; });
  const Nanos first = next_beat();
  EXPECT_LT(next_beat() - first, kPeriod);
  EXPECT_GE(asked, 3);
}

TEST_F(WatchdogTest, AnExceptionIsABeatLeftOut) {
  std::atomic<int> asked = 0;
  const Watchdog watchdog(*manager_, [&asked] {
    if (++asked < 3) throw std::bad_alloc();
    return true;
  });
  (void)next_beat();
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace sluice::cli
