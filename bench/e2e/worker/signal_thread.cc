#include "bench/e2e/worker/signal_thread.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/process_group.h"

namespace sluice::bench {

void SignalThread::block(int number) {
  const sigset_t set = signal_set({number});
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalThread::SignalThread(int number, const std::string& name, std::function<void()> on_signal)
    : on_signal_(std::move(on_signal)) {
  block(number);
  const sigset_t set = signal_set({number});
  signal_ = transport::tcp::Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = transport::tcp::Socket(eventfd(0, EFD_CLOEXEC));
  if (!signal_.valid() || !stop_.valid())
    throw Failure(kExitFailure, "cannot wait for " + name + ": no file descriptor is available");
  thread_ = std::thread([this] { run(); });
}

SignalThread::~SignalThread() {
  (void)eventfd_write(stop_.fd(), 1);
  thread_.join();
}

void SignalThread::run() const {
  // The function may write a file, and a limit of the file size sends SIGXFSZ to the thread that writes.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{.fd = signal_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_.fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) on_signal_();
  }
}

}  // namespace sluice::bench
