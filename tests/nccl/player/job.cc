#include "tests/nccl/player/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/library.h"

namespace player {
namespace {

// Must run before the plugin is loaded, because the plugin reads its environment once.
void set_environment(int index, const Options& options) {
  for (const std::string& entry : options.rank_environment) {
    const size_t colon = entry.find(':'), equals = entry.find('=');
    if (colon == std::string::npos || equals == std::string::npos || std::atoi(entry.c_str()) != index)
      continue;
    setenv(entry.substr(colon + 1, equals - colon - 1).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
}

void enter_network(int index, const Options& options) {
  for (const std::string& entry : options.rank_networks) {
    const size_t colon = entry.find(':');
    if (colon == std::string::npos || std::atoi(entry.c_str()) != index) continue;
    const int network = open(entry.c_str() + colon + 1, O_RDONLY | O_CLOEXEC);
    require(network >= 0 && setns(network, CLONE_NEWNET) == 0,
            "cannot enter the network namespace \"" + entry + "\"");
    close(network);
  }
}

int run_rank(int index, const Options& options, Bootstrap& bootstrap, Scenario scenario) {
  set_log_prefix("rank " + std::to_string(index) + ": ", options.verbose);
  set_environment(index, options);
  Rank rank(index, options, bootstrap);
  try {
    enter_network(index, options);
    scenario(rank);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "player: rank %d: %s (step: %s)\n", index, e.what(), bootstrap.step(index).c_str());
    bootstrap.abort();
    return 1;
  }
}

struct Child {
  pid_t pid;
  int descriptor;  // readable when the process has ended
};

int milliseconds_to(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

// Returns the contribution of this child to the exit code of the job.
int reap(const Child& child, int index) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  close(child.descriptor);
  if (WIFSIGNALED(status))
    std::fprintf(stderr, "player: rank %d was killed by signal %d\n", index, WTERMSIG(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

void Rank::yield() {
  if (bootstrap_.is_aborted()) throw Failure("another rank aborted");
  sched_yield();
}

void Rank::print(const std::string& line) const {
  std::printf("rank %d: %s\n", index_, line.c_str());
  std::fflush(stdout);
}

bool stdin_ended() {
  pollfd p{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}

int run_job(const Options& options, Scenario scenario) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.seconds));
  Bootstrap bootstrap(deadline);
  const pid_t parent = getpid();
  std::vector<Child> children;
  std::fflush(stdout);
  for (int index = 0; index < options.ranks; ++index) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const int result = run_rank(index, options, bootstrap, scenario);
      std::fflush(stdout);
      std::fflush(stderr);
      // exit() runs the destructors and atexit handlers of the plugin, as in an application.
      std::exit(result);
    }
    if (pid < 0) {
      std::perror("player: fork");
      return 1;
    }
    children.push_back({pid, static_cast<int>(syscall(SYS_pidfd_open, pid, 0))});
  }

  std::vector<pollfd> polled;
  for (const Child& child : children) polled.push_back({child.descriptor, POLLIN, 0});
  // The ranks expire first, because their messages contain more. After the failure of a rank, the others end
  // soon.
  auto watchdog = deadline + std::chrono::seconds(2);
  int worst = 0;
  for (size_t left = children.size(); left > 0;) {
    if (poll(polled.data(), polled.size(), milliseconds_to(watchdog)) == 0) {
      worst = 3;
      for (int index = 0; index < options.ranks; ++index) {
        if (polled[index].fd < 0) continue;
        std::fprintf(stderr, "player: watchdog expired: rank %d is at step: %s\n", index,
                     bootstrap.step(index).c_str());
        kill(children[index].pid, SIGKILL);
      }
      watchdog = Clock::now() + std::chrono::hours(1);  // killed processes end
      continue;
    }
    for (int index = 0; index < options.ranks; ++index) {
      if (polled[index].fd < 0 || polled[index].revents == 0) continue;
      polled[index].fd = -1;
      --left;
      const int result = reap(children[index], index);
      if (result == 0 || index == options.killed_rank) continue;
      if (worst == 0) worst = result;
      bootstrap.abort();
      watchdog = std::min(watchdog, Clock::now() + std::chrono::seconds(10));
    }
  }
  return worst;
}

}  // namespace player
