// Measures frames over loopback TCP between two contexts with a thread each; the peer echoes each frame.
// Prints GB/s, CPU seconds per GB of each thread, and system calls per frame. Plain sockets that move the
// same bytes are the lower bound.
//   tcp_bench [payload bytes] [seconds] [crc 0|1] [window frames]
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/crc32c.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace {

using namespace sluice;
using namespace sluice::transport;

struct Load {
  size_t payload = 256 * kKiB;
  Nanos duration = 2 * kSecond;
  bool crc = true;
  uint32_t window = 8;
};

double thread_cpu_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_THREAD, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

std::pair<int, int> connected_pair() {
  tcp::SocketOptions options;
  auto listener = tcp::listen_on("127.0.0.1", 0, options);
  if (!listener) std::exit(1);
  auto client =
      tcp::connect_to("127.0.0.1", *tcp::bound_port(listener->fd()), options, monotonic_now() + kSecond);
  if (!client) std::exit(1);
  int server = -1;
  while (server < 0) server = ::accept4(listener->fd(), nullptr, nullptr, SOCK_NONBLOCK);
  return {client->release(), server};
}

wire::FrameHeader data_header(const Load& load, std::span<const std::byte> payload) {
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = wire::DType::kF32;
  h.acc_dtype = wire::DType::kF32;
  h.result_dtype = wire::DType::kF32;
  h.length = static_cast<uint32_t>(payload.size());
  if (load.crc) {
    h.flags = wire::kFlagPayloadCrc;
    h.payload_crc = crc32c(payload);
  }
  return h;
}

// Keeps `window` frames in flight to the peer, which echoes each frame.
struct EchoClient final : Handler {
  explicit EchoClient(const Load& l) : load(l), out(l.payload), in(l.payload) {}
  void send(Endpoint& ep) {
    if (ep.put(data_header(load, out), {}, out, 0).ok()) ++requested;
  }
  ReceiveTarget on_header(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>) noexcept override {
    return {Errc::kOk, in.data()};
  }
  void on_frame(Endpoint& ep, const wire::FrameHeader&, std::span<const std::byte>,
                std::span<std::byte>) noexcept override {
    ++answered;
    if (!stop) send(ep);
  }
  void on_sent(Endpoint&, Cookie, Status) noexcept override {}
  void on_closed(Endpoint&, Errc reason) noexcept override {
    closed = true;
    std::printf("client closed: %s\n", std::string(to_string(reason)).c_str());
  }
  Load load;
  std::vector<std::byte> out, in;
  uint64_t requested = 0, answered = 0;
  bool stop = false, closed = false;
};

struct EchoServer final : Handler {
  explicit EchoServer(const Load& l) : load(l), slots(l.window, std::vector<std::byte>(l.payload)) {}
  ReceiveTarget on_header(Endpoint&, const wire::FrameHeader&, std::span<const std::byte>) noexcept override {
    return {Errc::kOk, slots[next % slots.size()].data()};
  }
  void on_frame(Endpoint& ep, const wire::FrameHeader&, std::span<const std::byte>,
                std::span<std::byte> p) noexcept override {
    ++next;
    if (!ep.put(data_header(load, p), {}, p, 0).ok()) std::abort();
  }
  void on_sent(Endpoint&, Cookie, Status) noexcept override {}
  void on_closed(Endpoint&, Errc) noexcept override { closed = true; }
  Load load;
  std::vector<std::vector<std::byte>> slots;
  uint64_t next = 0;
  bool closed = false;
};

void measure_frames(const Load& load) {
  auto [client, server] = connected_pair();
  EchoServer echo(load);
  std::thread peer([&, fd = server] {
    auto context = *tcp::make_context();
    Endpoint* ep = *context->adopt(tcp::Socket(fd), echo, {.send_queue = load.window + 1});
    EndpointCounters c;
    while (!echo.closed) {
      c = ep->counters();
      if (context->poll(monotonic_now(), kMiB) == 0) context->wait(-1);
    }
    const double gb = static_cast<double>(c.payload_bytes_in) * 1e-9;
    const double n = static_cast<double>(c.frames_in);
    std::printf("  frames echo:   %.3f CPU-s/GB  recv/frame %.2f send/frame %.2f copied/frame %.0f\n",
                thread_cpu_seconds() / gb, static_cast<double>(c.receive_calls) / n,
                static_cast<double>(c.send_calls) / n, static_cast<double>(c.bytes_copied) / n);
  });
  {
    auto context = *tcp::make_context();
    EchoClient echo_client(load);
    Endpoint* ep = *context->adopt(tcp::Socket(client), echo_client, {.send_queue = load.window});
    const double cpu = thread_cpu_seconds();
    const Nanos begin = monotonic_now();
    for (uint32_t i = 0; i < load.window; ++i) echo_client.send(*ep);
    while (echo_client.answered < echo_client.requested || !echo_client.stop) {
      const Nanos now = monotonic_now();
      echo_client.stop = now - begin > load.duration;
      if (context->poll(now, kMiB) == 0) context->wait(kMillisecond);
    }
    const double seconds = static_cast<double>(monotonic_now() - begin) * 1e-9;
    const double gb = static_cast<double>(echo_client.answered * load.payload) * 1e-9;
    std::printf("  frames client: %.3f CPU-s/GB  %.2f GB/s each way, %.2f us/frame\n",
                (thread_cpu_seconds() - cpu) / gb, gb / seconds,
                seconds * 1e6 / static_cast<double>(echo_client.answered));
    ep->shutdown();
    while (!echo_client.closed) {
      if (context->poll(monotonic_now(), kMiB) == 0) context->wait(kMillisecond);
    }
  }
  peer.join();
}

// Transfers a whole payload with blocking calls, without header and checksum: the lower bound.
bool transfer(int fd, std::byte* data, size_t size, bool out) {
  while (size > 0) {
    const ssize_t n = out ? ::send(fd, data, size, MSG_NOSIGNAL) : ::recv(fd, data, size, 0);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void measure_plain_sockets(const Load& load) {
  auto [client, server] = connected_pair();
  for (const int fd : {client, server}) {
    ::fcntl(fd, F_SETFL, 0);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  std::thread peer([&, fd = server] {
    // As many slots as for the frames, so that the cache footprint is equal.
    std::vector<std::vector<std::byte>> slots(load.window, std::vector<std::byte>(load.payload));
    uint64_t bytes = 0;
    for (size_t i = 0;; i = (i + 1) % slots.size()) {
      if (!transfer(fd, slots[i].data(), load.payload, false) ||
          !transfer(fd, slots[i].data(), load.payload, true))
        break;
      bytes += load.payload;
    }
    std::printf("  plain echo:    %.3f CPU-s/GB\n",
                thread_cpu_seconds() / (static_cast<double>(bytes) * 1e-9));
    ::close(fd);
  });
  std::vector<std::byte> out(load.payload), in(load.payload);
  const double cpu = thread_cpu_seconds();
  const Nanos begin = monotonic_now();
  uint64_t answered = 0;
  for (uint32_t i = 0; i < load.window; ++i) transfer(client, out.data(), out.size(), true);
  while (monotonic_now() - begin < load.duration) {
    if (!transfer(client, in.data(), in.size(), false) || !transfer(client, out.data(), out.size(), true))
      break;
    ++answered;
  }
  const double seconds = static_cast<double>(monotonic_now() - begin) * 1e-9;
  const double gb = static_cast<double>(answered * load.payload) * 1e-9;
  std::printf("  plain client:  %.3f CPU-s/GB  %.2f GB/s each way, %.2f us/frame\n",
              (thread_cpu_seconds() - cpu) / gb, gb / seconds, seconds * 1e6 / static_cast<double>(answered));
  ::shutdown(client, SHUT_WR);
  while (transfer(client, in.data(), in.size(), false)) {
  }
  ::close(client);
  peer.join();
}

}  // namespace

int main(int argc, char** argv) {
  Load load;
  if (argc > 1) load.payload = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) load.duration = static_cast<Nanos>(std::strtod(argv[2], nullptr) * 1e9);
  if (argc > 3) load.crc = std::atoi(argv[3]) != 0;
  if (argc > 4) load.window = static_cast<uint32_t>(std::max(1, std::atoi(argv[4])));
  std::printf("payload %zu, window %u, payload crc %s\n", load.payload, load.window, load.crc ? "on" : "off");
  measure_plain_sockets(load);
  measure_frames(load);
}
