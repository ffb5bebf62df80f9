#include "bench/e2e/process/process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bench/e2e/process/cpu_time.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr int kCannotExecute = 127;  // exit code of shells for a command that cannot run

// Runs in the child between fork and exec, where only async-signal-safe calls are allowed.
[[noreturn]] void exec_child(const std::vector<char*>& argv, const sigset_t& mask, pid_t launcher, int input,
                             int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kCannotExecute);  // the launcher ended before prctl() took effect
  if (input >= 0 && dup2(input, STDIN_FILENO) < 0) _exit(kCannotExecute);
  if (output >= 0 && dup2(output, STDOUT_FILENO) < 0) _exit(kCannotExecute);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(kCannotExecute);
}

}  // namespace

sigset_t signal_set(std::initializer_list<int> numbers) noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

bool ChildEnd::ok() const noexcept {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

int ChildEnd::exit_code() const noexcept {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1;
}

std::string ChildEnd::text() const {
  if (WIFSIGNALED(wait_status))
    return fmt::format("{} (pid {}) was killed by signal {}", name, pid, WTERMSIG(wait_status));
  return fmt::format("{} (pid {}) exited with code {}", name, pid, WEXITSTATUS(wait_status));
}

ProcessGroup::ProcessGroup(bool forward_hangups) : forward_hangups_(forward_hangups) {
  if (forward_hangups_) {
    const sigset_t hangup = signal_set({SIGHUP});
    pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  }
  const sigset_t dump = signal_set({SIGUSR2});
  pthread_sigmask(SIG_BLOCK, &dump, nullptr);
  const sigset_t watched = signal_set({SIGCHLD, SIGINT, SIGTERM});
  pthread_sigmask(SIG_BLOCK, &watched, &old_mask_);
  const sigset_t stop = signal_set({SIGINT, SIGTERM});
  signals_ = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
}

ProcessGroup::~ProcessGroup() {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (running(i)) {
      signal(i, SIGKILL);
      reap(i, true);
    }
  }
  if (signals_ >= 0) close(signals_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

Result<size_t> ProcessGroup::start(const ChildSpec& spec) {
  std::vector<std::string> arguments = {"sluice"};
  arguments.insert(arguments.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::array<int, 2> down = {-1, -1};
  std::array<int, 2> up = {-1, -1};
  if (spec.piped && (pipe2(down.data(), O_CLOEXEC) != 0 || pipe2(up.data(), O_CLOEXEC) != 0)) {
    return fail(Errc::kSystem,
                fmt::format("cannot create a pipe for {}: {}", spec.name, std::strerror(errno)));
  }
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) exec_child(argv, old_mask_, launcher, down[0], up[1]);
  const int fork_error = errno;
  for (int fd : {down[0], up[1]}) {
    if (fd >= 0) close(fd);
  }
  Child child{.name = spec.name, .pid = pid, .has_ended = false, .input = down[1], .output = up[0]};
  if (pid < 0) {
    close_pipes(child);
    return fail(Errc::kSystem, fmt::format("cannot start {}: {}", spec.name, std::strerror(fork_error)));
  }
  children_.push_back(std::move(child));
  return children_.size() - 1;
}

void ProcessGroup::close_pipes(Child& child) {
  for (int* fd : {&child.input, &child.output}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

void ProcessGroup::close_input(size_t index) {
  int& fd = children_[index].input;
  if (fd >= 0) close(fd);
  fd = -1;
}

std::optional<ChildEnd> ProcessGroup::reap(size_t index, bool block) {
  Child& child = children_[index];
  int status = 0;
  rusage usage{};
  pid_t reaped = 0;
  do {
    reaped = wait4(child.pid, &status, block ? 0 : WNOHANG, &usage);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != child.pid) return std::nullopt;
  child.has_ended = true;
  close_pipes(child);
  return ChildEnd{.child = index,
                  .name = child.name,
                  .pid = child.pid,
                  .wait_status = status,
                  .cpu_seconds = cpu_seconds_of(usage)};
}

std::optional<ChildEnd> ProcessGroup::wait(Nanos deadline) {
  sigset_t watched = signal_set({SIGCHLD, SIGINT, SIGTERM, SIGUSR2});
  if (forward_hangups_) sigaddset(&watched, SIGHUP);
  for (;;) {
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!running(i)) continue;
      if (auto ended = reap(i, false)) return ended;
    }
    const Nanos left = deadline - monotonic_now();
    if (left <= 0) return std::nullopt;
    const timespec timeout{.tv_sec = left / kSecond, .tv_nsec = left % kSecond};
    const int number = sigtimedwait(&watched, nullptr, &timeout);
    if (number == SIGINT || number == SIGTERM) {
      interrupted_ = number;
      return std::nullopt;
    }
    if (number != SIGHUP && number != SIGUSR2) continue;
    for (size_t i = 0; i < children_.size(); ++i) signal(i, number);
  }
}

bool ProcessGroup::wait_readable(int fd, Nanos deadline) {
  // If signalfd() failed, poll() ignores the second entry, and a signal takes effect when `fd` is readable or
  // the deadline passes.
  std::array<pollfd, 2> fds = {pollfd{.fd = fd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = signals_, .events = POLLIN, .revents = 0}};
  for (;;) {
    const Nanos left = std::clamp<Nanos>(deadline - monotonic_now(), 0, 3600 * kSecond);
    const int timeout = static_cast<int>(div_ceil(static_cast<uint64_t>(left), kMillisecond));
    const int ready = poll(fds.data(), fds.size(), timeout);
    signalfd_siginfo info{};
    if (ready > 0 && fds[1].revents != 0 && read(signals_, &info, sizeof info) == ssize_t{sizeof info}) {
      interrupted_ = static_cast<int>(info.ssi_signo);
      return false;
    }
    if (ready > 0 && fds[0].revents != 0) return true;
    if (ready == 0 && monotonic_now() >= deadline) return false;
  }
}

void ProcessGroup::signal(size_t child, int number) const {
  if (running(child)) kill(children_[child].pid, number);
}

std::vector<ChildEnd> ProcessGroup::stop(const std::vector<size_t>& children, Nanos timeout) {
  std::vector<ChildEnd> ends;
  for (size_t i : children) signal(i, SIGTERM);
  const Nanos deadline = monotonic_now() + timeout;
  for (size_t i : children) {
    while (running(i)) {
      if (auto ended = reap(i, false)) {
        ends.push_back(std::move(*ended));
        break;
      }
      if (monotonic_now() >= deadline) signal(i, SIGKILL);
      // The end of a child wakes the wait. The limit covers a SIGCHLD that was consumed for another child.
      const sigset_t child_signal = signal_set({SIGCHLD});
      const timespec limit{.tv_sec = 0, .tv_nsec = 20 * kMillisecond};
      sigtimedwait(&child_signal, nullptr, &limit);
    }
  }
  return ends;
}

std::vector<ChildEnd> ProcessGroup::stop_all(Nanos timeout) {
  std::vector<size_t> all;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (running(i)) all.push_back(i);
  }
  return stop(all, timeout);
}

}  // namespace sluice::bench
