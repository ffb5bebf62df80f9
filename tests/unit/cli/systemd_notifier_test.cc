#include "cli/process/systemd_notifier.h"

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

// Plays systemd for a service: a notification socket and a watchdog period in the environment.
class WatchdogFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    socket_ = transport::tcp::Socket(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    // The kernel chooses an abstract name: unix(7), autobind.
    ASSERT_EQ(bind(socket_.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any.sun_family), 0);
    sockaddr_un bound{};
    socklen_t size = sizeof bound;
    ASSERT_EQ(getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
    const std::string name(bound.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    ASSERT_EQ(setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout), 0);
    setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
    setenv("WATCHDOG_USEC", std::to_string(kPeriod / kMicrosecond).c_str(), 1);
    unsetenv("WATCHDOG_PID");
    notifier_.emplace();
    ASSERT_EQ(notifier_->watchdog_period(), kPeriod);
  }

  void next_notification() {
    std::string text(64, '\0');
    const ssize_t size = recv(socket_.fd(), text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    EXPECT_EQ(text, "WATCHDOG=1");
  }

  transport::tcp::Socket socket_;
  std::optional<SystemdNotifier> notifier_;
};

TEST_F(WatchdogFixture, OneFailedCheckIsNotFatal) {
  std::atomic<int> checks = 0;
  const Watchdog watchdog(*notifier_, [&checks] { return ++checks != 2; });
  next_notification();
  next_notification();
  EXPECT_GE(checks, 3);
}

TEST_F(WatchdogFixture, AnExceptionIsAFailedCheck) {
  std::atomic<int> checks = 0;
  const Watchdog watchdog(*notifier_, [&checks] {
    if (++checks < 3) throw std::bad_alloc();
    return true;
  });
  next_notification();
  EXPECT_GE(checks, 3);
}

}  // namespace
}  // namespace sluice::cli
