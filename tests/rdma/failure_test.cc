// What goes wrong with a device, a peer or a limit: each ends in a readable error, and leaves nothing behind.
// In a guest of guest.sh, as root: devices of its own are taken down.
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
#include "tests/conformance/transport/fixture.h"
#include "tests/conformance/transport/rdma_bed.h"
#include "tests/rdma/left_behind.h"
#include "transport/rdma/device_report.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {
namespace {

void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(cert-env33-c): the guest's own tools
}

// What is said while one is there.
class Warnings {
 public:
  Warnings() {
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept {
      const std::lock_guard lock(mutex());
      lines().emplace_back(line);
    });
  }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  ~Warnings() {
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

class RdmaFailure : public PairTest {
 protected:
  void SetUp() override { build(rdma_bed()); }
};

TEST_F(RdmaFailure, NoDeviceHasTheAddress) {
  const auto [one, other] = tcp_pair("127.0.0.1");
  const tcp::Socket near(one), far(other);
  const auto none = rdma::offer_pair(near.fd(), {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::kUnsupported);
  EXPECT_EQ(none.error().text, "no RDMA device has the address 127.0.0.1");
}

TEST_F(RdmaFailure, AnAddressThatIsNoneOrIsElsewhere) {
  const auto [one, other] = tcp_pair(rdma_addresses().first, rdma_addresses().second);
  const tcp::Socket near(one), far(other);
  auto offer = rdma::offer_pair(near.fd(), {});
  ASSERT_TRUE(offer) << offer.error().text;
  const auto told = [&](const Bytes& address) {
    const auto joined = rdma::join_pair(*offer->pair, near.fd(), address);
    return joined ? Errc::kOk : joined.error().code;
  };
  EXPECT_EQ(told({}), Errc::kBadLength);
  EXPECT_EQ(told(pattern(rdma::kPairAddressBytes, 1)), Errc::kBadMagic);
  EXPECT_EQ(told(pattern(rdma::kPairAddressBytes + 1, 1)), Errc::kBadLength);
  const auto bytes = std::as_bytes(std::span(offer->address));
  const Bytes own(bytes.begin(), bytes.end());
  // Its own: at this end of the connection, and not at the other.
  EXPECT_EQ(told(own), Errc::kBadField);
}

TEST_F(RdmaFailure, AnEntryOfTheAddressTableThatIsAskedFor) {
  const auto [one, other] = tcp_pair(rdma_addresses().first, rdma_addresses().second);
  const tcp::Socket near(one), far(other);
  const auto path = rdma::path_of(*rdma::gid_of_own_end(near.fd()), {});
  ASSERT_TRUE(path);
  const auto same = rdma::path_of(*rdma::gid_of_own_end(near.fd()), {.gid_index = path->gid_index});
  ASSERT_TRUE(same) << same.error().text;
  EXPECT_EQ(same->gid_index, path->gid_index);
  const auto peers = rdma::path_of(*rdma::gid_of_own_end(far.fd()), {});
  ASSERT_TRUE(peers);
  ASSERT_NE(peers->gid_index, path->gid_index);
  const auto none = rdma::offer_pair(near.fd(), {.gid_index = peers->gid_index});
  ASSERT_FALSE(none) << "it has another address, which the peer would not take";
  EXPECT_EQ(none.error().text, "no RDMA device has the address " + path->address + " at entry " +
                                   std::to_string(peers->gid_index) + " of its GID table");
  EXPECT_FALSE(rdma::rails({.gid_index = 200}));
}

// TCP goes from any address of this machine to any other; between its rails no wire goes.
TEST_F(RdmaFailure, NothingComesThrough) {
  auto [near, far] = joined("10.77.0.1", "10.77.1.2");
  const auto pair = near.take_companion();
  const Nanos began = monotonic_now();
  const auto proved = rdma::prove_pair(*pair, began + kPatience);
  ASSERT_FALSE(proved);
  EXPECT_EQ(proved.error().code, Errc::kTimeout);
  EXPECT_EQ(proved.error().text, "nothing comes through on the queue pair: timeout");
  EXPECT_LT(monotonic_now() - began, kPatience) << "a second was enough";
  const auto again = rdma::offer_pair(near.fd(), {});
  ASSERT_FALSE(again) << "a session has many connections, and a second each is too much";
  EXPECT_EQ(again.error().text, "nothing came through on a queue pair a moment ago");
  auto [one, other] = joined(rdma_addresses().first, rdma_addresses().second);
  EXPECT_TRUE(rdma::prove_pair(*one.take_companion(), monotonic_now() + kPatience));
}

// For who may not wait: by its own clock.
TEST_F(RdmaFailure, NothingComesThroughIsFoundInSteps) {
  auto [near, far] = joined("10.77.1.1", "10.77.0.2");
  const auto pair = near.take_companion();
  const Nanos since = monotonic_now();
  ASSERT_TRUE(rdma::start_proof(*pair));
  EXPECT_EQ(rdma::look_at_proof(*pair, since, since).error().code, Errc::kWouldBlock);
  EXPECT_TRUE(rdma::offer_pair(near.fd(), {})) << "nothing is known yet";
  EXPECT_EQ(rdma::look_at_proof(*pair, since, since + 1 * kSecond).error().text,
            "nothing comes through on the queue pair: timeout");
  EXPECT_FALSE(rdma::offer_pair(near.fd(), {})) << "others need not try";

  auto [one, other] = joined(rdma_addresses().first, rdma_addresses().second);
  const auto good = one.take_companion();
  ASSERT_TRUE(rdma::start_proof(*good));
  const Nanos deadline = monotonic_now() + kPatience;
  Result<void> proved = rdma::look_at_proof(*good, 0, 0);
  while (!proved && proved.error().code == Errc::kWouldBlock && monotonic_now() < deadline)
    proved = rdma::look_at_proof(*good, 0, 0);
  EXPECT_TRUE(proved);
}

TEST_F(RdmaFailure, AThousandConnectionsLeaveNothing) {
  const size_t descriptors = open_descriptors();
  const std::string before = held();
  // Two pairs, and one that is the kernel's; memory is counted, and so is who has the device open.
  ASSERT_NE(before.find("qp 5 "), std::string::npos) << before;
  ASSERT_NE(before.find("mr 4 ctx 1 "), std::string::npos) << before;
  for (int i = 0; i < 1000; ++i) {
    Recorder one, other;
    connect(one, other, {});
    ASSERT_TRUE(one.put_pattern(100, 0).ok());
    if (i % 3 == 0) {
      one.close(i % 2 == 0 ? Errc::kReset : Errc::kAborted);
    } else {
      one.shutdown();
    }
    ASSERT_TRUE(drive_until([&] { return one.closed && other.closed; }));
  }
  // What was sent last is on its way for a moment after the close.
  EXPECT_TRUE(drive_until([&] { return open_descriptors() == descriptors; }))
      << open_descriptors() << " of " << descriptors;
  EXPECT_EQ(held(), before);
}

// Both want to send all the time, and one of them does not poll, until it does and ends. What a device would
// make of more than there are receives for, a retry when the receiver is not ready, must not come up.
TEST_F(RdmaFailure, NoMoreIsSentThanThePeerHasReceivesFor) {
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(left.put_pattern(kMiB, i).ok());
    ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  }
  bed_.b->poll(monotonic_now(), 1);
  for (int i = 0; i < 100; ++i) bed_.a->poll(monotonic_now(), kBudget);
  left.shutdown();
  for (int i = 0; i < 100; ++i) bed_.a->poll(monotonic_now(), kBudget);
  EXPECT_EQ(left.endpoint->counters().wire_bytes_out, size_t{rdma::kDataReceives} * rdma::kSegmentBytes);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(right.received.size(), 4U);
  EXPECT_EQ(left.received.size(), 4U);
  run("rdma statistic show link rxe0/1 | grep -qw 'rcvd_rnr_err 0'");
}

// It has ended, and does not poll: what is left to be sent to it can't go.
TEST_F(RdmaFailure, GivesUpOnAPeerThatEndedAndTakesNothing) {
  left = Recorder();
  right = Recorder();
  connect(left, right, {.send_queue = 20, .frame_deadline = 400 * kMillisecond});
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  left.shutdown();
  bed_.a->poll(monotonic_now(), 1);
  unsigned turns = 0;
  for (const Nanos begin = monotonic_now(); !right.closed && monotonic_now() - begin < kPatience; ++turns) {
    if (bed_.b->poll(monotonic_now(), kBudget) == 0) bed_.b->wait(kPatience);
  }
  ASSERT_TRUE(right.closed);
  EXPECT_EQ(*right.closed, Errc::kTimeout);
  EXPECT_LT(turns, 200U) << "it did not sleep";
}

TEST_F(RdmaFailure, LockedMemoryIsTooLittle) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Root may lock what it likes.
    const rlimit limit{.rlim_cur = 64 * kKiB, .rlim_max = 64 * kKiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const auto all = rdma::paths({});
    if (!all) ::_exit(4);
    auto domain = rdma::Domain::make(all->front().device);
    if (!domain) ::_exit(9);
    const size_t descriptors = open_descriptors();
    const auto pair = rdma::QueuePair::make(all->front(), 0, std::move(*domain), {});
    if (pair) ::_exit(5);
    if (open_descriptors() != descriptors) ::_exit(7);
    const auto reports = rdma::device_reports();
    const auto& one = reports.front();
    if (one.registrations_failed != 1 || one.pairs_failed != 1 || one.pairs_made != 0) ::_exit(8);
    std::fprintf(stderr, "%s\n", pair.error().text.c_str());
    ::_exit(pair.error().text.find("the limit of locked memory is 65536 bytes (ulimit -l)") !=
                    std::string::npos
                ? 0
                : 6);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A child has no use of what its parent holds, and makes its own.
TEST_F(RdmaFailure, AChildOfAProcessThatHasPairsMakesItsOwn) {
  const auto [address, from] = rdma_addresses();
  const pid_t child = ::fork();
  if (child == 0) {
    auto context = rdma::make_context();
    if (!context) ::_exit(3);
    auto [one, other] = joined(address, from);
    Recorder sender, receiver;
    sender.endpoint = *(*context)->adopt(std::move(one), sender, {});
    receiver.endpoint = *(*context)->adopt(std::move(other), receiver, {});
    if (!sender.put_pattern(100'000, 0).ok()) ::_exit(4);
    const Nanos deadline = monotonic_now() + kPatience;
    while (receiver.received.empty() && monotonic_now() < deadline)
      (*context)->poll(monotonic_now(), kBudget);
    ::_exit(receiver.received.size() == 1 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Two joined ends on a device of their own, so that the healthy pair keeps one.
struct OnSecondRail {
  OnSecondRail() {
    auto [near, far] = joined("10.77.1.1", "10.77.1.2");
    one.endpoint = *(*a)->adopt(std::move(near), one, {});
    other.endpoint = *(*b)->adopt(std::move(far), other, {});
  }
  Result<std::unique_ptr<tcp::TcpContext>> a = rdma::make_context(), b = rdma::make_context();
  Recorder one, other;
};

// Neither end sends anything: no retry tells them.
TEST_F(RdmaFailure, ThePortGoesDownUnderThoseWhoOnlyReceive) {
  OnSecondRail rail;
  auto &a = rail.a, &b = rail.b;
  Recorder &one = rail.one, &other = rail.other;
  // Asleep, in a thread each, as lanes are.
  const auto until_closed = [deadline = monotonic_now() + kPatience](auto& context, const Recorder& end) {
    unsigned turns = 0;
    for (; !end.closed && monotonic_now() < deadline; ++turns) {
      if (context->poll(monotonic_now(), kBudget) == 0) context->wait(deadline - monotonic_now());
    }
    return turns;
  };
  const Warnings warnings;
  auto there = std::async(std::launch::async, [&] { return until_closed(*b, other); });
  auto here = std::async(std::launch::async, [&] { return until_closed(*a, one); });
  const Nanos began = monotonic_now();
  run("ip link set rail1 down");
  EXPECT_LT(here.get() + there.get(), 100U) << "they did not sleep";
  EXPECT_LT(monotonic_now() - began, kSecond) << "no retries";
  EXPECT_EQ(one.closed, Errc::kReset);
  EXPECT_EQ(other.closed, Errc::kReset);
  EXPECT_EQ(Warnings::all(),
            std::vector<std::string>{"RDMA device rxe1 port 1 went down: 2 queue pairs are lost"});
  run("ip link set rail1 up");
  // It is as good as before.
  EXPECT_NO_THROW((void)joined("10.77.1.1", "10.77.1.2"));
}

// While two have a pair on it, and a third may need it. The kernel's soft-RoCE says nothing, and waits until
// nobody has the device open; drivers of cards say it, and wait for nobody (device_events_test).
TEST_F(RdmaFailure, TheDeviceIsRemoved) {
  const size_t descriptors = open_descriptors();
  std::future<void> removed;  // waited for once nobody has the device, whatever went wrong
  {
    auto rails = rdma::rails({});
    ASSERT_TRUE(rails);
    OnSecondRail rail;
    auto &a = rail.a, &b = rail.b;
    Recorder &one = rail.one, &other = rail.other;
    ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
    const Warnings warnings;
    removed = std::async(std::launch::async, [] { run("rdma link delete rxe1"); });
    const Nanos deadline = monotonic_now() + kPatience;
    while (!(one.closed && other.closed) && monotonic_now() < deadline) {
      (*a)->poll(monotonic_now(), kBudget);
      (*b)->poll(monotonic_now(), kBudget);
    }
    EXPECT_EQ(one.closed, Errc::kReset);
    EXPECT_EQ(other.closed, Errc::kReset);
    EXPECT_EQ(Warnings::all(), std::vector<std::string>{"RDMA device rxe1 is gone: 2 queue pairs are lost"});
    rdma::look_at_devices();
    ASSERT_EQ(removed.wait_for(std::chrono::seconds(30)), std::future_status::ready)
        << "somebody has it open";
    EXPECT_EQ(held().find("rxe1"), std::string::npos);
    const auto [three, four] = tcp_pair("10.77.1.1", "10.77.1.2");
    const tcp::Socket next(three), at(four);
    const auto none = rdma::offer_pair(next.fd(), {});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().text, "no RDMA device has the address 10.77.1.2");
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  run("rdma link add rxe1 type rxe netdev rail1");
  EXPECT_NO_THROW((void)joined("10.77.1.1", "10.77.1.2"));
}

// The far end is another process, with the device opened for itself: no pair is open here when it begins. It
// takes nothing.
class RdmaPeer : public testing::Test {
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
      auto socket = tcp::connect_to(address, port, options, monotonic_now() + kPatience);
      if (!socket || !join(*socket)) ::_exit(1);
      for (;;) ::pause();
    }
    ASSERT_GT(child, 0);
    ::fcntl(listener->fd(), F_SETFL, 0);
    tcp::Socket near(::accept(listener->fd(), nullptr, nullptr));
    ASSERT_TRUE(join(near));
    auto made = rdma::make_context();
    ASSERT_TRUE(made);
    context = std::move(*made);
    alone.endpoint = *context->adopt(std::move(near), alone, {});
  }
  void TearDown() override {
    if (child > 0) kill_it();
  }
  // Both tell their address, join with the other's, and say so.
  static bool join(tcp::Socket& socket) {
    const Nanos deadline = monotonic_now() + kPatience;
    auto offer = rdma::offer_pair(socket.fd(), {});
    if (!offer) return false;
    std::array<std::byte, rdma::kPairAddressBytes> peer;
    std::array<std::byte, 1> ready{};
    const bool told = write_all(socket, std::as_bytes(std::span(offer->address)), deadline).ok() &&
                      read_exact(socket, peer, deadline).ok();
    if (!told || !rdma::join_pair(*offer->pair, socket.fd(), peer)) return false;
    socket.accompany(std::move(offer->pair));
    return write_all(socket, ready, deadline).ok() && read_exact(socket, ready, deadline).ok();
  }
  void kill_it() {
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    child = 0;
  }
  bool drive(const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kPatience;
    while (!done() && monotonic_now() < deadline) {
      if (context->poll(monotonic_now(), kBudget) == 0) context->wait(kSecond);
    }
    return done();
  }
  void expect_lost() {
    ASSERT_TRUE(drive([this] { return alone.closed.has_value(); }));
    EXPECT_EQ(*alone.closed, Errc::kReset);
    EXPECT_TRUE(alone.all_given_back());
  }
  pid_t child = 0;
  std::unique_ptr<tcp::TcpContext> context;
  Recorder alone;
};

TEST_F(RdmaPeer, ThatIsKilledAfterAWriteIsLostAndHasNotEnded) {
  ASSERT_TRUE(alone.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive([this] { return alone.all_given_back(); }));
  kill_it();
  expect_lost();
}

TEST_F(RdmaPeer, ThatIsKilledDuringAWrite) {
  ASSERT_TRUE(alone.put_pattern(4 * kMiB, 0).ok());
  ASSERT_TRUE(drive([this] { return alone.endpoint->counters().wire_bytes_out > 100'000; }));
  EXPECT_FALSE(alone.all_given_back());
  kill_it();
  expect_lost();
  EXPECT_FALSE(alone.sent.at(0).ok());
}

TEST_F(RdmaPeer, ThatIsKilledBeforeAWrite) {
  kill_it();
  ASSERT_TRUE(alone.put_pattern(100'000, 0).ok());
  expect_lost();
}

}  // namespace
}  // namespace sluice::transport::test
