#include "bench/e2e/pool_reload.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>

#include "bench/e2e/exit_codes.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

sigset_t hangup() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void PoolReload::block_signal() {
  const sigset_t set = hangup();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

PoolReload::PoolReload(sluice_session* session) : session_(session) {
  const sigset_t set = hangup();
  signal_ = transport::tcp::Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = transport::tcp::Socket(eventfd(0, EFD_CLOEXEC));
  if (!signal_.valid() || !stop_.valid()) throw Failure(kExitFailure, "SIGHUP can't be waited for");
  thread_ = std::thread([this] { run(); });
}

PoolReload::~PoolReload() {
  (void)eventfd_write(stop_.fd(), 1);
  thread_.join();
}

void PoolReload::run() const {
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{.fd = signal_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_.fd(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    std::array<char, 1024> why{};
    if (sluice_session_set_reducers(session_, nullptr, why.data(), why.size()) != SLUICE_OK)
      log::warn(fmt::format("SIGHUP: {}", why.data()));
  }
}

}  // namespace sluice::bench
