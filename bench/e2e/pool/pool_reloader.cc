#include "bench/e2e/pool/pool_reloader.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>

#include "bench/e2e/process/exit_codes.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

sigset_t hangup_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void PoolReloader::block_signal() {
  const sigset_t set = hangup_signal();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

PoolReloader::PoolReloader(sluice_session* session) : session_(session) {
  const sigset_t set = hangup_signal();
  signal_ = transport::tcp::Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = transport::tcp::Socket(eventfd(0, EFD_CLOEXEC));
  if (!signal_.valid() || !stop_.valid())
    throw Failure(kExitFailure, "cannot wait for SIGHUP: no file descriptor is available");
  thread_ = std::thread([this] { run(); });
}

PoolReloader::~PoolReloader() {
  (void)eventfd_write(stop_.fd(), 1);
  thread_.join();
}

void PoolReloader::run() const {
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{.fd = signal_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_.fd(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    std::array<char, 1024> error{};
    if (sluice_session_set_reducers(session_, nullptr, error.data(), error.size()) != SLUICE_OK)
      log::warn(fmt::format("pool file not reloaded after SIGHUP: {}", error.data()));
  }
}

}  // namespace sluice::bench
