// Compares the point-to-point transport of the NCCL plugin with plain non-blocking sockets: one process sends
// to another over loopback. Both move the same messages over the same number of connections in alternating
// runs. Prints GB/s of each and the ratio.
//   net_bench [MiB per run] [runs] [--message KiB] [--streams N] [--sender NETNS ADDRESS] [--receiver NETNS
//   ADDRESS]
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/micro/bench_process.h"
#include "core/clock.h"
#include "nccl_plugin/net/connector.h"
#include "nccl_plugin/net/listener.h"
#include "nccl_plugin/net/recv_comm.h"
#include "nccl_plugin/net/send_comm.h"

namespace {

using namespace sluice;
using namespace sluice::nccl;
using bench::exit_with_error;
using bench::Pipe;
using bench::ProcessLocation;
using transport::tcp::Socket;

constexpr size_t kInFlight = 8;
const nccl::net::StreamSettings kTcp;

using Buffers = std::vector<std::vector<std::byte>>;

Buffers make_buffers(size_t size, bool filled) {
  Buffers all(kInFlight, std::vector<std::byte>(size));
  for (size_t i = 0; filled && i < kInFlight; ++i) {
    for (size_t k = 0; k < size; ++k) all[i][k] = static_cast<std::byte>(k * 31 + i + (k >> 12));
  }
  return all;
}

struct Load {
  size_t message;
  unsigned streams;
  size_t messages;
};

// Class PlainSockets is the lower bound: it splits each message evenly over the connections, without headers
// and grants.
class PlainSockets {
 public:
  PlainSockets(std::vector<Socket> sockets, size_t message)
      : sockets_(std::move(sockets)), message_(message) {}

  void run(Buffers& data, size_t messages, bool out) {
    const size_t n = sockets_.size();
    const size_t part = message_ / n;
    struct Position {
      size_t message = 0;
      size_t done = 0;
    };
    std::vector<Position> positions(n);
    for (size_t finished = 0; finished < n;) {
      bool idle = true;
      for (size_t i = 0; i < n; ++i) {
        Position& at = positions[i];
        while (at.message < messages) {
          std::byte* const p = data[at.message % kInFlight].data() + i * part + at.done;
          // The same limit per call as in the reader of the transport.
          const size_t length = out ? part - at.done : std::min(part - at.done, 256 * kKiB);
          const ssize_t moved = out ? ::send(sockets_[i].fd(), p, length, MSG_NOSIGNAL | MSG_DONTWAIT)
                                    : ::recv(sockets_[i].fd(), p, length, MSG_DONTWAIT);
          if (moved < 0 && (errno == EAGAIN || errno == EINTR)) break;
          if (moved <= 0) exit_with_error("plain connection closed");
          idle = false;
          at.done += static_cast<size_t>(moved);
          if (at.done == part) {
            at.done = 0;
            if (++at.message == messages) ++finished;
          }
        }
      }
      if (idle) ::sched_yield();  // like the progress thread of NCCL
    }
  }

 private:
  std::vector<Socket> sockets_;
  size_t message_;
};

template <typename Post>
void run_net(size_t messages, Post post) {
  nccl::net::Request* open[kInFlight]{};
  size_t posted = 0;
  size_t finished = 0;
  while (finished < messages) {
    bool idle = true;
    for (size_t i = 0; i < kInFlight; ++i) {
      if (open[i] != nullptr) {
        bool done = false;
        if (!nccl::net::test(*open[i], &done, nullptr).ok()) exit_with_error("net connection closed");
        if (!done) continue;
        open[i] = nullptr;
        ++finished;
        idle = false;
      }
      // Message k uses buffer k mod kInFlight on both sides.
      if (posted < messages && posted % kInFlight == i) {
        if (!post(i, &open[i]).ok()) exit_with_error("net connection closed");
        if (open[i] != nullptr) ++posted, idle = false;
      }
    }
    if (idle) ::sched_yield();
  }
}

// PendingConnects with the handshake of the transport, also for the plain sockets, so that both use equal
// sockets.
template <typename Side>
nccl::net::ConnectedStreams connect_streams(Side side) {
  for (;;) {
    auto streams = side();
    if (streams) return std::move(*streams);
    if (streams.error().code != Errc::kWouldBlock) exit_with_error(streams.error().text);
  }
}

// Runs the receiver. The pipes carry the address of the receiver and the start and end of each run.
void run_receiver(const Pipe& to_sender, const Pipe& from_sender, int runs, const std::vector<Load>& loads,
                  const ProcessLocation& here) {
  for (const Load& load : loads) {
    nccl::net::ConnectedStreams streams[2];
    for (auto& s : streams) {
      std::array<std::byte, abi::kHandleBytes> handle{};
      auto listener = nccl::net::Listener::open(here.address, kTcp, nccl::net::Handle(handle));
      if (!listener) exit_with_error(listener.error().text);
      to_sender.write(handle.data(), handle.size());
      s = connect_streams([&] { return (*listener)->accept(monotonic_now()); });
    }
    PlainSockets plain(std::move(streams[0].sockets), load.message);
    const auto comm = std::move(*nccl::net::RecvComm::make(std::move(streams[1])));
    const Buffers expected = make_buffers(load.message, true);
    Buffers data = make_buffers(load.message, false);
    for (int run = 0; run < 2 * runs; ++run) {
      char go = 0;
      from_sender.read(&go, 1);
      if (run % 2 == 0) {
        plain.run(data, load.messages, false);
      } else {
        run_net(load.messages, [&](size_t i, nccl::net::Request** request) {
          return nccl::net::irecv(*comm, data[i].data(), data[i].size(), 0, request);
        });
      }
      to_sender.write(&go, 1);
      if (data != expected) exit_with_error("received data differs from the sent data");
      for (auto& buffer : data) std::ranges::fill(buffer, std::byte{0});
      to_sender.write(&go, 1);
    }
  }
}

// Pins this process to the first or the last CPU. On one CPU the processes would take turns, and without
// pinning the placement by the scheduler would affect the result.
void pin_to_cpu(bool first) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int chosen = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE && !(first && chosen >= 0); ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) chosen = cpu;
  }
  if (chosen < 0) return;
  CPU_ZERO(&allowed);
  CPU_SET(chosen, &allowed);
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

void run_sender(const Pipe& to_receiver, const Pipe& from_receiver, int runs, const std::vector<Load>& loads,
                const ProcessLocation& here) {
  std::printf("GB/s, %d runs each, %zu messages in flight\n", runs, kInFlight);
  std::printf("%-10s %7s  %10s %10s  %6s  %10s %10s\n", "message", "streams", "plain", "net", "ratio",
              "plain best", "net best");
  for (const Load& load : loads) {
    nccl::net::ConnectedStreams streams[2];
    for (auto& s : streams) {
      std::array<std::byte, abi::kHandleBytes> handle{};
      from_receiver.read(handle.data(), handle.size());
      auto listen_handle = nccl::net::decode_listen_handle(nccl::net::Handle(handle));
      auto connector =
          nccl::net::Connector::start(*listen_handle, here.address, load.streams, kTcp, monotonic_now());
      if (!connector) exit_with_error(connector.error().text);
      s = connect_streams([&] { return (*connector)->progress(monotonic_now()); });
    }
    PlainSockets plain(std::move(streams[0].sockets), load.message);
    const auto comm = std::move(*nccl::net::SendComm::make(std::move(streams[1])));
    Buffers data = make_buffers(load.message, true);
    std::vector<double> rates[2];
    for (int run = 0; run < 2 * runs; ++run) {
      const Nanos begin = monotonic_now();
      char go = 'g';
      to_receiver.write(&go, 1);
      if (run % 2 == 0) {
        plain.run(data, load.messages, true);
      } else {
        run_net(load.messages, [&](size_t i, nccl::net::Request** request) {
          return nccl::net::isend(*comm, data[i].data(), data[i].size(), 0, request);
        });
      }
      from_receiver.read(&go, 1);
      const double seconds = static_cast<double>(monotonic_now() - begin) * 1e-9;
      rates[run % 2].push_back(static_cast<double>(load.messages * load.message) * 1e-9 / seconds);
      from_receiver.read(&go, 1);
    }
    const double plain_rate = median(rates[0]);
    const double net_rate = median(rates[1]);
    std::printf("%7zu KiB %7u  %10.2f %10.2f  %6.2f  %10.2f %10.2f\n", load.message / kKiB, load.streams,
                plain_rate, net_rate, net_rate / plain_rate, std::ranges::max(rates[0]),
                std::ranges::max(rates[1]));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> messages = {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB};
  std::vector<unsigned> stream_counts = {1, 2, 4};
  ProcessLocation from, to;
  std::vector<size_t> numbers;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--message" && i + 1 < argc) {
      messages = {std::strtoull(argv[++i], nullptr, 10) * kKiB};
    } else if (argument == "--streams" && i + 1 < argc) {
      stream_counts = {static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10))};
    } else if ((argument == "--sender" || argument == "--receiver") && i + 2 < argc) {
      ProcessLocation& location = argument == "--sender" ? from : to;
      location = {.name = argv[i + 1], .address = argv[i + 2]};
      i += 2;
    } else {
      numbers.push_back(std::strtoull(argv[i], nullptr, 10));
    }
  }
  const size_t run_bytes = (numbers.empty() ? 512 : numbers[0]) * kMiB;
  const int runs = numbers.size() > 1 ? std::max(1, static_cast<int>(numbers[1])) : 5;
  std::vector<Load> loads;
  for (const size_t message : messages) {
    for (const unsigned streams : stream_counts)
      loads.push_back({message, streams, std::max<size_t>(run_bytes / message, kInFlight)});
  }
  const Pipe down;
  const Pipe up;
  const pid_t child = ::fork();
  if (child < 0) exit_with_error("cannot fork the receiver");
  if (child == 0) {
    ::close(down.ends[1]);
    ::close(up.ends[0]);
    pin_to_cpu(false);
    to.enter();
    run_receiver(up, down, runs, loads, to);
    std::_Exit(0);
  }
  ::close(down.ends[0]);
  ::close(up.ends[1]);
  pin_to_cpu(true);
  from.enter();
  run_sender(down, up, runs, loads, from);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
