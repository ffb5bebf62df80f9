#include "bench/e2e/worker/dump_signal_receiver.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/process_group.h"
#include "blackbox/event_source.h"
#include "blackbox/process_dump.h"

namespace sluice::bench {

DumpSignalReceiver::DumpSignalReceiver() {
  const sigset_t set = signal_set({SIGUSR2});
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_ = transport::tcp::Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = transport::tcp::Socket(eventfd(0, EFD_CLOEXEC));
  if (!signal_.valid() || !stop_.valid())
    throw Failure(kExitFailure, "cannot wait for SIGUSR2: no file descriptor is available");
  thread_ = std::thread([this] { run(); });
}

DumpSignalReceiver::~DumpSignalReceiver() {
  (void)eventfd_write(stop_.fd(), 1);
  thread_.join();
}

void DumpSignalReceiver::run() const {
  // A limit of the file size sends SIGXFSZ to the thread that writes.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{.fd = signal_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_.fd(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    blackbox::EventSource().record(blackbox::EventKind::kSignal, {.a = info.ssi_signo});
    blackbox::dump_on_request("SIGUSR2");
  }
}

}  // namespace sluice::bench
