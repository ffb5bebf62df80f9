// A ring allreduce over the NCCL plugin's point-to-point net, without overlap between its steps: what NCCL's
// own algorithms have to offer where messages are small, on the same wires as the reducers. f32, sum.
//   ring_bench --rank NETNS ADDRESS [--rank NETNS ADDRESS]... [--sizes BYTES,...] [--iterations N]
// Prints size and the median time of an allreduce in microseconds; a tree's time follows from its hops, which
// are a ring's at another size (bench/netbed/threshold.py).
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
using bench::give_up;
using bench::Pipe;
using bench::Place;

constexpr int kWarmUp = 5;
const net::StreamTerms kTcp;

using Handle = std::array<std::byte, abi::kHandleBytes>;

class Rank {
 public:
  Rank(size_t rank, const std::vector<Place>& places, const std::vector<Pipe>& pipes)
      : rank_(rank), n_(places.size()) {
    Handle mine{};
    auto listener = net::Listener::open(places[rank].address, kTcp, net::Handle(mine));
    if (!listener) give_up(listener.error().text);
    // The one before reads it from this rank's pipe.
    pipes[rank].write(mine.data(), mine.size());
    Handle next{};
    pipes[(rank + 1) % n_].read(next.data(), next.size());
    auto invitation = net::read_invitation(net::Handle(next));
    if (!invitation) give_up(invitation.error().text);
    auto connector = net::Connector::start(*invitation, places[rank].address, 1, kTcp, monotonic_now());
    if (!connector) give_up(connector.error().text);
    // Both at once: in a ring everybody waits for somebody.
    while (!send_ || !receive_) {
      if (!send_) {
        if (auto s = (*connector)->progress(monotonic_now())) {
          send_ = std::move(*net::SendComm::make(std::move(*s)));
        } else if (s.error().code != Errc::kWouldBlock) {
          give_up(s.error().text);
        }
      }
      if (!receive_) {
        if (auto s = (*listener)->accept(monotonic_now())) {
          receive_ = std::move(*net::RecvComm::make(std::move(*s)));
        } else if (s.error().code != Errc::kWouldBlock) {
          give_up(s.error().text);
        }
      }
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
  void exchange(std::span<float> out, std::span<float> in) {
    net::Request* requests[2]{};
    bool done[2] = {false, false};
    while (!done[0] || !done[1]) {
      if (requests[0] == nullptr &&
          !net::irecv(*receive_, std::as_writable_bytes(in).data(), in.size_bytes(), 0, &requests[0]).ok())
        give_up("connection lost");
      if (requests[1] == nullptr &&
          !net::isend(*send_, std::as_bytes(out).data(), out.size_bytes(), 0, &requests[1]).ok())
        give_up("connection lost");
      for (int i = 0; i < 2; ++i) {
        if (requests[i] != nullptr && !done[i] && !net::test(*requests[i], &done[i], nullptr).ok())
          give_up("connection lost");
      }
      if (!done[0] || !done[1]) ::sched_yield();  // as NCCL's progress thread does
    }
  }

  const size_t rank_;
  const size_t n_;
  std::unique_ptr<net::SendComm> send_;
  std::unique_ptr<net::RecvComm> receive_;
  std::vector<float> scratch_;
};

void run(size_t rank, const std::vector<Place>& places, const std::vector<Pipe>& pipes,
         const std::vector<size_t>& sizes, int iterations) {
  places[rank].enter();
  Rank self(rank, places, pipes);
  for (const size_t size : sizes) {
    std::vector<float> data(std::max<size_t>(size / sizeof(float), 1));
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + iterations; ++i) {
      std::ranges::fill(data, 1.0F);
      const Nanos begin = monotonic_now();
      self.allreduce(data);
      if (i >= kWarmUp) times.push_back(1e-3 * static_cast<double>(monotonic_now() - begin));
      const auto n = static_cast<float>(places.size());
      if (std::ranges::any_of(data, [n](float v) { return v != n; })) give_up("wrong sum");
    }
    std::ranges::sort(times);
    if (rank == 0) std::printf("%zu %.1f\n", size, times[times.size() / 2]), std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Place> places;
  std::vector<size_t> sizes = {16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB};
  int iterations = 50;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rank" && i + 2 < argc) {
      places.push_back({argv[i + 1], argv[i + 2]});
      i += 2;
    } else if (word == "--sizes" && i + 1 < argc) {
      sizes.clear();
      for (char* at = argv[++i]; *at != '\0'; at += *at == ',') sizes.push_back(std::strtoull(at, &at, 10));
    } else if (word == "--iterations" && i + 1 < argc) {
      iterations = std::max(1, std::atoi(argv[++i]));
    } else {
      give_up("unknown word " + word);
    }
  }
  if (places.size() < 2) give_up("two ranks at least: --rank NETNS ADDRESS");
  const std::vector<Pipe> pipes(places.size());
  std::vector<pid_t> ranks;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) give_up("cannot fork");
    if (pid == 0) {
      run(rank, places, pipes, sizes, iterations);
      std::_Exit(0);
    }
    ranks.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}
