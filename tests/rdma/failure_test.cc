// Failures of a device, a peer or a limit: each ends with a clear error and leaks nothing. Runs as root in a
// guest of guest.sh, because the tests take devices down.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "tests/conformance/transport/rdma_test_bed.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "tests/rdma/leaked_resources.h"
#include "transport/rdma/device_report.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::transport::test {
namespace {

void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(cert-env33-c): the guest's tools
}

// LogRecorder records the log lines while it lives. One at a time.
class LogRecorder {
 public:
  LogRecorder() {
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept {
      const std::lock_guard lock(mutex());
      lines().emplace_back(line);
    });
  }
  LogRecorder(const LogRecorder&) = delete;
  LogRecorder& operator=(const LogRecorder&) = delete;
  ~LogRecorder() {
    log::set_sink(nullptr);
    lines().clear();
  }
  static std::vector<std::string> all() {
    const std::lock_guard lock(mutex());
    return lines();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> all;
    return all;
  }
};

constexpr const char* kProbeTimeoutText =
    "queue pair probe failed: timeout; a firewall or switch may block RoCE (UDP port 4791)";

class RdmaFailure : public PairFixture {
 protected:
  void SetUp() override { build(make_rdma_test_bed()); }
};

TEST_F(RdmaFailure, RefusesAnAddressOfNoDevice) {
  const auto [near, far] = tcp_pair("127.0.0.1");
  const auto none = rdma::offer_pair(rdma::connection_gids(near.fd()), {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::kUnsupported);
  EXPECT_EQ(none.error().text, "no RDMA device has the address 127.0.0.1");
}

TEST_F(RdmaFailure, RefusesAnInvalidOrForeignPeerAddress) {
  const auto [near, far] = tcp_pair(rdma_addresses().first, rdma_addresses().second);
  auto offer = rdma::offer_pair(rdma::connection_gids(near.fd()), {});
  ASSERT_TRUE(offer) << offer.error().text;
  const auto connect_code = [&, gids = rdma::connection_gids(near.fd())](const Bytes& address) {
    const auto connected = rdma::connect_pair(*offer->pair, gids, address);
    return connected ? Errc::kOk : connected.error().code;
  };
  EXPECT_EQ(connect_code({}), Errc::kBadLength);
  EXPECT_EQ(connect_code(pattern(rdma::kPairAddressBytes, 1)), Errc::kBadMagic);
  EXPECT_EQ(connect_code(pattern(rdma::kPairAddressBytes + 1, 1)), Errc::kBadLength);
  const auto bytes = std::as_bytes(std::span(offer->address));
  const Bytes own(bytes.begin(), bytes.end());
  // The local address is not the address of the peer.
  EXPECT_EQ(connect_code(own), Errc::kBadField);
}

TEST_F(RdmaFailure, UsesTheRequestedGidIndexOnly) {
  const auto [near, far] = tcp_pair(rdma_addresses().first, rdma_addresses().second);
  const auto path = rdma::find_local_path(rdma::connection_gids(near.fd())->local, {});
  ASSERT_TRUE(path);
  const auto same =
      rdma::find_local_path(rdma::connection_gids(near.fd())->local, {.gid_index = path->gid_index});
  ASSERT_TRUE(same) << same.error().text;
  EXPECT_EQ(same->gid_index, path->gid_index);
  const auto peers = rdma::find_local_path(rdma::connection_gids(far.fd())->local, {});
  ASSERT_TRUE(peers);
  ASSERT_NE(peers->gid_index, path->gid_index);
  const auto none = rdma::offer_pair(rdma::connection_gids(near.fd()), {.gid_index = peers->gid_index});
  ASSERT_FALSE(none) << "the entry has another address, which the peer would refuse";
  EXPECT_EQ(none.error().text, "no RDMA device has the address " + path->address + " at GID index " +
                                   std::to_string(peers->gid_index));
  EXPECT_FALSE(rdma::find_rails({.gid_index = 200}));
}

// TCP reaches every local address, but no network connects the two rails.
TEST_F(RdmaFailure, ProbeTimesOutWithoutAPath) {
  auto [near, far] = connected_rdma_pair("10.77.0.1", "10.77.1.2");
  const auto pair = near.release_channel();
  const Nanos began = monotonic_now();
  const auto probed = rdma::probe_pair(*pair, began + kTestTimeout);
  ASSERT_FALSE(probed);
  EXPECT_EQ(probed.error().code, Errc::kTimeout);
  EXPECT_EQ(probed.error().text, kProbeTimeoutText);
  EXPECT_LT(monotonic_now() - began, kTestTimeout) << "the probe takes one second at most";
  const auto again = rdma::offer_pair(rdma::connection_gids(near.fd()), {});
  ASSERT_FALSE(again) << "each connection of a session would wait a second";
  EXPECT_EQ(again.error().text, "a queue pair to this peer failed its probe less than 60 s ago");
  auto [one, other] = connected_rdma_pair(rdma_addresses().first, rdma_addresses().second);
  EXPECT_TRUE(rdma::probe_pair(*one.release_channel(), monotonic_now() + kTestTimeout));
}

// The caller passes the time.
TEST_F(RdmaFailure, NonBlockingProbeTimesOutWithoutAPath) {
  auto [near, far] = connected_rdma_pair("10.77.1.1", "10.77.0.2");
  const auto pair = near.release_channel();
  const Nanos since = monotonic_now();
  ASSERT_TRUE(rdma::start_probe(*pair));
  EXPECT_EQ(rdma::poll_probe(*pair, since, since).error().code, Errc::kWouldBlock);
  EXPECT_TRUE(rdma::offer_pair(rdma::connection_gids(near.fd()), {})) << "the probe has no result yet";
  EXPECT_EQ(rdma::poll_probe(*pair, since, since + 1 * kSecond).error().text, kProbeTimeoutText);
  EXPECT_FALSE(rdma::offer_pair(rdma::connection_gids(near.fd()), {})) << "the failed probe is remembered";

  auto [one, other] = connected_rdma_pair(rdma_addresses().first, rdma_addresses().second);
  const auto working = one.release_channel();
  ASSERT_TRUE(rdma::start_probe(*working));
  const Nanos deadline = monotonic_now() + kTestTimeout;
  Result<void> probed = rdma::poll_probe(*working, 0, 0);
  while (!probed && probed.error().code == Errc::kWouldBlock && monotonic_now() < deadline)
    probed = rdma::poll_probe(*working, 0, 0);
  EXPECT_TRUE(probed);
}

TEST_F(RdmaFailure, AThousandConnectionsLeakNothing) {
  const size_t descriptors = open_descriptors();
  const std::string before = kernel_resources();
  // Two connected pairs, and one queue pair of the kernel. "mr" counts memory regions, "ctx" openings of the
  // device.
  ASSERT_NE(before.find("qp 5 "), std::string::npos) << before;
  ASSERT_NE(before.find("mr 4 ctx 1 "), std::string::npos) << before;
  for (int i = 0; i < 1000; ++i) {
    RecordingHandler one, other;
    connect(one, other, {});
    ASSERT_TRUE(one.put_pattern(100, 0).ok());
    if (i % 3 == 0) {
      one.close(i % 2 == 0 ? Errc::kReset : Errc::kAborted);
    } else {
      one.shutdown();
    }
    ASSERT_TRUE(poll_until([&] { return one.closed && other.closed; }));
  }
  // The last bytes are delivered shortly after the close.
  EXPECT_TRUE(poll_until([&] { return open_descriptors() == descriptors; }))
      << open_descriptors() << " of " << descriptors;
  EXPECT_EQ(kernel_resources(), before);
}

// Both ends have much to send, and one of them does not poll. An excess segment would cause a
// receiver-not-ready retry, which the statistics of the device must not show.
TEST_F(RdmaFailure, NeverSendsMoreThanThePeerHasReceives) {
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(left.put_pattern(kMiB, i).ok());
    ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  }
  test_bed_.b->poll(monotonic_now(), 1);
  for (int i = 0; i < 100; ++i) test_bed_.a->poll(monotonic_now(), kBudget);
  left.shutdown();
  for (int i = 0; i < 100; ++i) test_bed_.a->poll(monotonic_now(), kBudget);
  EXPECT_EQ(left.endpoint->counters().wire_bytes_out, size_t{rdma::kDataReceives} * rdma::kSegmentBytes);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.received.size(), 4U);
  EXPECT_EQ(left.received.size(), 4U);
  run("rdma statistic show link rxe0/1 | grep -qw 'rcvd_rnr_err 0'");
}

// The peer has shut down and does not poll, so the queued frames cannot be sent.
TEST_F(RdmaFailure, TimesOutOnAPeerThatEndedAndReceivesNothing) {
  reconnect({.send_queue = 20, .frame_deadline = 400 * kMillisecond});
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  left.shutdown();
  test_bed_.a->poll(monotonic_now(), 1);
  unsigned turns = 0;
  for (const Nanos begin = monotonic_now(); !right.closed && monotonic_now() - begin < kTestTimeout;
       ++turns) {
    if (test_bed_.b->poll(monotonic_now(), kBudget) == 0) test_bed_.b->wait(kTestTimeout);
  }
  ASSERT_TRUE(right.closed);
  EXPECT_EQ(*right.closed, Errc::kTimeout);
  EXPECT_LT(turns, 200U) << "the endpoint did not sleep";
}

TEST_F(RdmaFailure, NamesTheLimitOfLockedMemory) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Root has no limit of locked memory.
    const rlimit limit{.rlim_cur = 64 * kKiB, .rlim_max = 64 * kKiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const auto all = rdma::find_local_paths({});
    if (!all) ::_exit(4);
    auto domain = rdma::ProtectionDomain::make(all->front().device);
    if (!domain) ::_exit(9);
    const size_t descriptors = open_descriptors();
    const auto pair = rdma::QueuePair::make(all->front(), 0, std::move(*domain), {});
    if (pair) ::_exit(5);
    if (open_descriptors() != descriptors) ::_exit(7);
    const auto reports = rdma::device_reports();
    const auto& one = reports.front();
    if (one.registrations_failed != 1 || one.pairs_failed != 1 || one.pairs_made != 0) ::_exit(8);
    std::fprintf(stderr, "%s\n", pair.error().text.c_str());
    ::_exit(pair.error().text.find("the limit of locked memory is 65536 bytes") != std::string::npos ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A forked child cannot use the devices of its parent.
TEST_F(RdmaFailure, AForkedChildOpensItsOwnDevices) {
  const auto [address, from] = rdma_addresses();
  const pid_t child = ::fork();
  if (child == 0) {
    auto context = rdma::make_context();
    if (!context) ::_exit(3);
    auto [one, other] = connected_rdma_pair(address, from);
    RecordingHandler sender, receiver;
    sender.endpoint = *(*context)->adopt(std::move(one), sender, {});
    receiver.endpoint = *(*context)->adopt(std::move(other), receiver, {});
    if (!sender.put_pattern(100'000, 0).ok()) ::_exit(4);
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (receiver.received.empty() && monotonic_now() < deadline)
      (*context)->poll(monotonic_now(), kBudget);
    ::_exit(receiver.received.size() == 1 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Two connected ends on the second device, so that the endpoints of the fixture are not affected.
struct SecondRailPair {
  SecondRailPair() {
    auto [near, far] = connected_rdma_pair("10.77.1.1", "10.77.1.2");
    one.endpoint = *(*a)->adopt(std::move(near), one, {});
    other.endpoint = *(*b)->adopt(std::move(far), other, {});
  }
  Result<std::unique_ptr<tcp::TcpContext>> a = rdma::make_context(), b = rdma::make_context();
  RecordingHandler one, other;
};

// Neither end sends, so no failed retry reveals the error.
TEST_F(RdmaFailure, APortErrorEndsEndpointsThatOnlyReceive) {
  SecondRailPair rail;
  // Each end sleeps in its own thread, like a lane of a reducer.
  const auto until_closed = [deadline = monotonic_now() + kTestTimeout](auto& context,
                                                                        const RecordingHandler& end) {
    unsigned turns = 0;
    for (; !end.closed && monotonic_now() < deadline; ++turns) {
      if (context->poll(monotonic_now(), kBudget) == 0) context->wait(deadline - monotonic_now());
    }
    return turns;
  };
  const LogRecorder log_recorder;
  auto there = std::async(std::launch::async, [&] { return until_closed(*rail.b, rail.other); });
  auto here = std::async(std::launch::async, [&] { return until_closed(*rail.a, rail.one); });
  run("ip link set rail1 down");
  EXPECT_LT(here.get() + there.get(), 100U) << "the endpoints did not sleep";
  EXPECT_EQ(rail.one.closed, Errc::kReset) << "after retries: kTimeout";
  EXPECT_EQ(rail.other.closed, Errc::kReset);
  EXPECT_EQ(LogRecorder::all(),
            std::vector<std::string>{"RDMA device rxe1 port 1 went down: 2 queue pairs lost"});
  run("ip link set rail1 up");
  // New connections work again.
  EXPECT_NO_THROW((void)connected_rdma_pair("10.77.1.1", "10.77.1.2"));
}

// Two endpoints use the device. Soft-RoCE raises no event and waits until no process has the device open.
// Drivers of hardware raise an event and do not wait (device_events_test).
TEST_F(RdmaFailure, ADeviceRemovalEndsItsEndpoints) {
  const size_t descriptors = open_descriptors();
  std::future<void> removed;  // its destructor waits, so all users of the device must be destroyed before
  {
    auto rails = rdma::find_rails({});
    ASSERT_TRUE(rails);
    SecondRailPair rail;
    auto& [a, b, one, other] = rail;
    ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
    const LogRecorder log_recorder;
    removed = std::async(std::launch::async, [] { run("rdma link delete rxe1"); });
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (!(one.closed && other.closed) && monotonic_now() < deadline) {
      (*a)->poll(monotonic_now(), kBudget);
      (*b)->poll(monotonic_now(), kBudget);
    }
    EXPECT_EQ(one.closed, Errc::kReset);
    EXPECT_EQ(other.closed, Errc::kReset);
    EXPECT_EQ(LogRecorder::all(),
              std::vector<std::string>{"RDMA device rxe1 was removed: 2 queue pairs lost"});
    rdma::poll_device_events();
    ASSERT_EQ(removed.wait_for(std::chrono::seconds(30)), std::future_status::ready)
        << "the device is still open";
    EXPECT_EQ(kernel_resources().find("rxe1"), std::string::npos);
    const auto [next, at] = tcp_pair("10.77.1.1", "10.77.1.2");
    const auto none = rdma::offer_pair(rdma::connection_gids(next.fd()), {});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().text, "no RDMA device has the address 10.77.1.2");
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  run("rdma link add rxe1 type rxe netdev rail1");
  EXPECT_NO_THROW((void)connected_rdma_pair("10.77.1.1", "10.77.1.2"));
}

// The peer is another process with its own device; no queue pair is open when the test starts. The peer
// receives nothing.
class RdmaPeerFixture : public testing::Test {
 protected:
  void SetUp() override {
    const auto [address, from] = rdma_addresses();
    auto listener = tcp::listen_on(address, 0, {});
    ASSERT_TRUE(listener);
    const uint16_t port = tcp::bound_port(listener->fd()).value();
    child = ::fork();
    if (child == 0) {
      tcp::SocketOptions options;
      options.local_address = from;
      auto socket = tcp::connect_to(address, port, options, monotonic_now() + kTestTimeout);
      if (!socket || !attach_pair(*socket)) ::_exit(1);
      for (;;) ::pause();
    }
    ASSERT_GT(child, 0);
    ::fcntl(listener->fd(), F_SETFL, 0);
    tcp::Socket near(::accept(listener->fd(), nullptr, nullptr));
    ASSERT_TRUE(attach_pair(near));
    auto made = rdma::make_context();
    ASSERT_TRUE(made);
    context = std::move(*made);
    local.endpoint = *context->adopt(std::move(near), local, {});
  }
  void TearDown() override {
    if (child > 0) kill_child();
  }
  // Exchanges the addresses, connects, and exchanges a byte to confirm.
  static bool attach_pair(tcp::Socket& socket) {
    const Nanos deadline = monotonic_now() + kTestTimeout;
    auto offer = rdma::offer_pair(rdma::connection_gids(socket.fd()), {});
    if (!offer) return false;
    std::array<std::byte, rdma::kPairAddressBytes> peer;
    std::array<std::byte, 1> ready{};
    const bool exchanged = write_all(socket, std::as_bytes(std::span(offer->address)), deadline).ok() &&
                           read_exact(socket, peer, deadline).ok();
    if (!exchanged || !rdma::connect_pair(*offer->pair, rdma::connection_gids(socket.fd()), peer))
      return false;
    socket.attach_channel(std::move(offer->pair));
    return write_all(socket, ready, deadline).ok() && read_exact(socket, ready, deadline).ok();
  }
  void kill_child() {
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    child = 0;
  }
  bool poll_until(const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (!done() && monotonic_now() < deadline) {
      if (context->poll(monotonic_now(), kBudget) == 0) context->wait(kSecond);
    }
    return done();
  }
  void expect_lost() {
    ASSERT_TRUE(poll_until([this] { return local.closed.has_value(); }));
    EXPECT_EQ(*local.closed, Errc::kReset);
    EXPECT_TRUE(local.all_completed());
  }
  pid_t child = 0;
  std::unique_ptr<tcp::TcpContext> context;
  RecordingHandler local;
};

TEST_F(RdmaPeerFixture, KilledAfterAWriteIsAReset) {
  ASSERT_TRUE(local.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(poll_until([this] { return local.all_completed(); }));
  kill_child();
  expect_lost();
}

TEST_F(RdmaPeerFixture, KilledDuringAWriteIsAReset) {
  ASSERT_TRUE(local.put_pattern(4 * kMiB, 0).ok());
  ASSERT_TRUE(poll_until([this] { return local.endpoint->counters().wire_bytes_out > 100'000; }));
  EXPECT_FALSE(local.all_completed());
  kill_child();
  expect_lost();
  EXPECT_FALSE(local.sent.at(0).ok());
}

TEST_F(RdmaPeerFixture, KilledBeforeAWriteIsAReset) {
  kill_child();
  ASSERT_TRUE(local.put_pattern(100'000, 0).ok());
  expect_lost();
}

}  // namespace
}  // namespace sluice::transport::test
