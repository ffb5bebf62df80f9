// Class ProcessGroup starts, watches and stops the child processes of a launcher. A child runs the executable
// of this process. No child outlives the launcher, because the kernel kills the children when the launcher
// ends.
//
// Threads: use only in the main thread, and before the process starts other threads. Cold path.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

// Returns the set of these signals.
[[nodiscard]] sigset_t signal_set(std::initializer_list<int> numbers) noexcept;

struct ChildSpec {
  std::string name;                    // for messages, for example "worker 3"
  std::vector<std::string> arguments;  // without the program name
  bool piped = false;  // stdin and stdout are pipes to the launcher; otherwise the child inherits them
};

struct ChildEnd {
  size_t child = 0;  // index that start() returned
  std::string name;
  pid_t pid = 0;
  int wait_status = 0;
  double cpu_seconds = 0;  // user and system time of the whole process

  [[nodiscard]] bool ok() const noexcept;
  // Returns the exit code, or 1 when a signal ended the child.
  [[nodiscard]] int exit_code() const noexcept;
  // Returns "worker 3 (pid 4711) exited with code 69" or "worker 3 (pid 4711) was killed by signal 9".
  [[nodiscard]] std::string text() const;
};

class ProcessGroup {
 public:
  // Blocks SIGCHLD, SIGINT and SIGTERM in the calling thread until destruction; wait() receives them. Blocks
  // SIGUSR2 permanently, and with `forward_hangups` SIGHUP; wait() forwards them to the children, which start
  // with them blocked.
  explicit ProcessGroup(bool forward_hangups = false);
  // Kills and reaps the remaining children.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Runs /proc/self/exe with the arguments. The child gets the previous signal mask, and SIGKILL when the
  // calling thread ends.
  [[nodiscard]] Result<size_t> start(const ChildSpec& spec);

  [[nodiscard]] pid_t pid(size_t child) const { return children_[child].pid; }
  [[nodiscard]] bool running(size_t child) const {
    return children_[child].pid > 0 && !children_[child].has_ended;
  }
  // The launcher's ends of the pipes to stdin and stdout of a piped child.
  [[nodiscard]] int input(size_t child) const { return children_[child].input; }
  [[nodiscard]] int output(size_t child) const { return children_[child].output; }
  // Closes the pipe to stdin of a piped child.
  void close_input(size_t child);

  // Returns the next child that ended. Returns nothing when the deadline passed, or when SIGINT or SIGTERM
  // arrived; interrupted() then returns the signal.
  [[nodiscard]] std::optional<ChildEnd> wait(Nanos deadline);
  // Returns true when `fd` is readable or at its end; false in the cases where wait() returns nothing.
  [[nodiscard]] bool wait_readable(int fd, Nanos deadline);
  [[nodiscard]] int interrupted() const noexcept { return interrupted_; }
  // Resets interrupted() to 0 until the next signal.
  void clear_interruption() noexcept { interrupted_ = 0; }

  void signal(size_t child, int number) const;
  // Sends SIGTERM to the children and SIGKILL to those that run after `timeout`, and reaps them. Returns the
  // ends in the order of the list.
  std::vector<ChildEnd> stop(const std::vector<size_t>& children, Nanos timeout);
  // The same for all running children.
  std::vector<ChildEnd> stop_all(Nanos timeout);

 private:
  struct Child {
    std::string name;
    pid_t pid = 0;
    bool has_ended = false;
    int input = -1;
    int output = -1;
  };
  std::optional<ChildEnd> reap(size_t child, bool block);
  void close_pipes(Child& child);

  std::vector<Child> children_;
  const bool forward_hangups_;
  sigset_t old_mask_{};
  int signals_ = -1;  // signalfd for SIGINT and SIGTERM
  int interrupted_ = 0;
};

}  // namespace sluice::bench
