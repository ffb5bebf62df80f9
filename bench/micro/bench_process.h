// Helpers of benchmarks with several processes: network namespaces, pipes, and fatal errors.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>  // program_invocation_short_name
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "transport/tcp/socket.h"

namespace sluice::bench {

// Prints a line to stderr and ends this process with exit code 1.
[[noreturn]] inline void exit_with_error(const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", ::program_invocation_short_name, message.c_str());
  std::_Exit(1);
}

// The location of a process: an address in this network namespace or in another one.
struct ProcessLocation {
  std::string name;  // of the namespace, as in `ip netns`; empty: the current namespace
  std::string address = "127.0.0.1";

  void enter() const {
    if (name.empty()) return;
    const transport::tcp::Socket fd(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() || ::setns(fd.fd(), CLONE_NEWNET) != 0)
      exit_with_error("cannot enter network namespace " + name);
  }
};

// A pipe between two processes; create it before the fork.
struct Pipe {
  Pipe() {
    if (::pipe(ends) != 0) exit_with_error("cannot create a pipe");
  }
  void write(const void* data, size_t size) const {
    if (::write(ends[1], data, size) != static_cast<ssize_t>(size))
      exit_with_error("the other process has ended");
  }
  void read(void* data, size_t size) const {
    for (size_t have = 0; have < size;) {
      const ssize_t n = ::read(ends[0], static_cast<char*>(data) + have, size - have);
      if (n <= 0) exit_with_error("the other process has ended");
      have += static_cast<size_t>(n);
    }
  }
  int ends[2]{};
};

}  // namespace sluice::bench
