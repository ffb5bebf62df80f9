// One process of a benchmark that is several: where it lives, how it speaks to another, how it gives up.
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

// Ends this process with a line on stderr.
[[noreturn]] inline void give_up(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", ::program_invocation_short_name, what.c_str());
  std::_Exit(1);
}

// On loopback, or in a network namespace with an address of its own.
struct Place {
  std::string name;  // of a namespace, as `ip netns` has it; empty: this one
  std::string address = "127.0.0.1";

  void enter() const {
    if (name.empty()) return;
    const transport::tcp::Socket fd(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() || ::setns(fd.fd(), CLONE_NEWNET) != 0) give_up("cannot enter the namespace " + name);
  }
};

// From one process to another, made before they part.
struct Pipe {
  Pipe() {
    if (::pipe(ends) != 0) give_up("no pipe");
  }
  void write(const void* data, size_t size) const {
    if (::write(ends[1], data, size) != static_cast<ssize_t>(size)) give_up("the other process is gone");
  }
  void read(void* data, size_t size) const {
    for (size_t have = 0; have < size;) {
      const ssize_t n = ::read(ends[0], static_cast<char*>(data) + have, size - have);
      if (n <= 0) give_up("the other process is gone");
      have += static_cast<size_t>(n);
    }
  }
  int ends[2]{};
};

}  // namespace sluice::bench
