// The child processes of a launcher: started from this program's own file, watched together, ended together.
// No child outlives the launcher, however it ends. Cold path; one thread, the program's first, and before any
// other thread is started.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct ChildSpec {
  std::string name;                    // "worker 3": for messages
  std::vector<std::string> arguments;  // what follows the program's name
  bool piped = false;  // its stdin and stdout are pipes to the launcher; otherwise the launcher's own
};

struct ChildEnd {
  size_t child = 0;  // as start() returned
  std::string name;
  pid_t pid = 0;
  int wait_status = 0;
  double cpu_seconds = 0;  // user and system, whole life

  [[nodiscard]] bool ok() const noexcept;
  // Its exit code; 1 when a signal ended it.
  [[nodiscard]] int exit_code() const noexcept;
  // "worker 3 (pid 4711) ended with exit code 69", "... was killed by signal 9".
  [[nodiscard]] std::string text() const;
};

class ProcessGroup {
 public:
  // Blocks SIGCHLD, SIGINT and SIGTERM in the calling thread until destroyed: they are taken by wait(). With
  // `pass_on_hangups` SIGHUP too, for good: wait() hands it to the children, who begin with it blocked.
  explicit ProcessGroup(bool pass_on_hangups = false);
  // Kills and reaps whoever is left.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Runs /proc/self/exe with the arguments; the child gets the signal mask of before, and SIGKILL when this
  // thread ends.
  [[nodiscard]] Result<size_t> start(const ChildSpec& spec);

  [[nodiscard]] pid_t pid(size_t child) const { return children_[child].pid; }
  [[nodiscard]] bool running(size_t child) const {
    return children_[child].pid > 0 && !children_[child].ended;
  }
  // The launcher's ends of a piped child's stdin and stdout.
  [[nodiscard]] int input(size_t child) const { return children_[child].input; }
  [[nodiscard]] int output(size_t child) const { return children_[child].output; }
  // Ends a piped child's stdin.
  void close_input(size_t child);

  // The next child that ended; nothing when the deadline passed or SIGINT or SIGTERM came (then interrupted()
  // says which).
  [[nodiscard]] std::optional<ChildEnd> wait(Nanos deadline);
  // True when `fd` has something to read, or has ended; false as with wait().
  [[nodiscard]] bool wait_readable(int fd, Nanos deadline);
  [[nodiscard]] int interrupted() const noexcept { return interrupted_; }
  // It has been dealt with: interrupted() is 0 until the next signal.
  void forget_interruption() noexcept { interrupted_ = 0; }

  void signal(size_t child, int number) const;
  // SIGTERM to these, SIGKILL to who is still there after `grace`; reaps them. Ends in order of the list.
  std::vector<ChildEnd> end(const std::vector<size_t>& children, Nanos grace);
  // The same for all that run.
  std::vector<ChildEnd> end_all(Nanos grace);

 private:
  struct Child {
    std::string name;
    pid_t pid = 0;
    bool ended = false;
    int input = -1;
    int output = -1;
  };
  std::optional<ChildEnd> reap(size_t child, bool block);
  void close_pipes(Child& child);

  std::vector<Child> children_;
  const bool pass_on_hangups_;
  sigset_t old_mask_{};
  int signals_ = -1;  // SIGINT and SIGTERM as something to poll
  int interrupted_ = 0;
};

}  // namespace sluice::bench
