#include "cli/process/signal_receiver.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {

SignalReceiver::SignalReceiver() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = transport::tcp::Socket(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd_.valid())
    throw bench::Failure(bench::kExitFailure, std::string("cannot create signalfd: ") + std::strerror(errno));
}

bool SignalReceiver::is_stop_pending() const noexcept {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
}

int SignalReceiver::wait(int other_fd) const {
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{.fd = fd_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = other_fd, .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      if (read(fd_.fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        return static_cast<int>(info.ssi_signo);
    }
    if (fds[1].revents != 0) return 0;
  }
}

}  // namespace sluice::cli
