// Measures a ring allreduce (f32 sum) over the point-to-point transport of the NCCL plugin. The steps do not
// overlap. The time estimates NCCL's own algorithms for small messages on the same links as the reducers.
//   ring_bench --rank NETNS ADDRESS [--rank NETNS ADDRESS]... [--sizes BYTES,...] [--iterations N]
// Prints each size and the median time of an allreduce in microseconds. bench/test_network/threshold.py
// derives the time of a tree from it: the hops of a tree equal those of a ring at another size.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
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

constexpr int kWarmUp = 5;
const net::StreamSettings kTcp;

using Handle = std::array<std::byte, abi::kHandleBytes>;

class Rank {
 public:
  Rank(size_t rank, const std::vector<ProcessLocation>& locations, const std::vector<Pipe>& pipes)
      : rank_(rank), n_(locations.size()) {
    Handle mine{};
    auto listener = net::Listener::open(locations[rank].address, kTcp, net::Handle(mine));
    if (!listener) exit_with_error(listener.error().text);
    // The previous rank reads the handle from the pipe of this rank.
    pipes[rank].write(mine.data(), mine.size());
    Handle next{};
    pipes[(rank + 1) % n_].read(next.data(), next.size());
    auto listen_handle = net::decode_listen_handle(net::Handle(next));
    if (!listen_handle) exit_with_error(listen_handle.error().text);
    auto connector = net::Connector::start(*listen_handle, locations[rank].address, 1, kTcp, monotonic_now());
    if (!connector) exit_with_error(connector.error().text);
    // Progresses both connections, because in a ring every rank waits for another rank.
    while (!send_ || !receive_) {
      if (!send_) make_if_connected(send_, (*connector)->progress(monotonic_now()));
      if (!receive_) make_if_connected(receive_, (*listener)->accept(monotonic_now()));
      ::sched_yield();
    }
  }

  void allreduce(std::vector<float>& data) {
    const size_t part = (data.size() + n_ - 1) / n_;
    scratch_.resize(part);
    const auto piece = [&](size_t i) {
      const size_t from = std::min(i % n_ * part, data.size());
      return std::span(data).subspan(from, std::min(part, data.size() - from));
    };
    for (size_t step = 0; step + 1 < n_; ++step) {
      const auto target = piece(rank_ + 2 * n_ - step - 1);
      exchange(piece(rank_ + n_ - step), {scratch_.data(), target.size()});
      for (size_t k = 0; k < target.size(); ++k) target[k] += scratch_[k];
    }
    for (size_t step = 0; step + 1 < n_; ++step)
      exchange(piece(rank_ + n_ + 1 - step), piece(rank_ + n_ - step));
  }

 private:
  template <typename Comm>
  static void make_if_connected(std::unique_ptr<Comm>& comm, Result<net::ConnectedStreams> streams) {
    if (!streams && streams.error().code != Errc::kWouldBlock) exit_with_error(streams.error().text);
    if (streams) comm = std::move(*Comm::make(std::move(*streams)));
  }

  void exchange(std::span<float> out, std::span<float> in) {
    net::Request* requests[2]{};
    bool done[2] = {false, false};
    while (!done[0] || !done[1]) {
      if (requests[0] == nullptr &&
          !net::irecv(*receive_, std::as_writable_bytes(in).data(), in.size_bytes(), 0, &requests[0]).ok())
        exit_with_error("connection closed");
      if (requests[1] == nullptr &&
          !net::isend(*send_, std::as_bytes(out).data(), out.size_bytes(), 0, &requests[1]).ok())
        exit_with_error("connection closed");
      for (int i = 0; i < 2; ++i) {
        if (requests[i] != nullptr && !done[i] && !net::test(*requests[i], &done[i], nullptr).ok())
          exit_with_error("connection closed");
      }
      if (!done[0] || !done[1]) ::sched_yield();  // like the progress thread of NCCL
    }
  }

  const size_t rank_;
  const size_t n_;
  std::unique_ptr<net::SendComm> send_;
  std::unique_ptr<net::RecvComm> receive_;
  std::vector<float> scratch_;
};

void run(size_t rank, const std::vector<ProcessLocation>& locations, const std::vector<Pipe>& pipes,
         const std::vector<size_t>& sizes, int iterations) {
  locations[rank].enter();
  Rank self(rank, locations, pipes);
  for (const size_t size : sizes) {
    std::vector<float> data(std::max<size_t>(size / sizeof(float), 1));
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + iterations; ++i) {
      std::ranges::fill(data, 1.0F);
      const Nanos begin = monotonic_now();
      self.allreduce(data);
      if (i >= kWarmUp) times.push_back(1e-3 * static_cast<double>(monotonic_now() - begin));
      const auto n = static_cast<float>(locations.size());
      if (std::ranges::any_of(data, [n](float v) { return v != n; })) exit_with_error("wrong sum");
    }
    std::ranges::sort(times);
    if (rank == 0) std::printf("%zu %.1f\n", size, times[times.size() / 2]), std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<ProcessLocation> locations;
  std::vector<size_t> sizes = {16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB};
  int iterations = 50;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rank" && i + 2 < argc) {
      locations.push_back({argv[i + 1], argv[i + 2]});
      i += 2;
    } else if (argument == "--sizes" && i + 1 < argc) {
      sizes.clear();
      for (char* at = argv[++i]; *at != '\0'; at += *at == ',') sizes.push_back(std::strtoull(at, &at, 10));
    } else if (argument == "--iterations" && i + 1 < argc) {
      iterations = std::max(1, std::atoi(argv[++i]));
    } else {
      exit_with_error("unknown argument " + argument);
    }
  }
  if (locations.size() < 2) exit_with_error("expected at least two ranks: --rank NETNS ADDRESS");
  const std::vector<Pipe> pipes(locations.size());
  std::vector<pid_t> ranks;
  for (size_t rank = 0; rank < locations.size(); ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) exit_with_error("cannot fork a rank");
    if (pid == 0) {
      run(rank, locations, pipes, sizes, iterations);
      std::_Exit(0);
    }
    ranks.push_back(pid);
  }
  int exit_code = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    exit_code = std::max(exit_code, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return exit_code;
}
