// Processes at the socket where the ranks of a host meet that are no ranks of the session.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "gpu_client/local/meeting_proof.h"
#include "gpu_client/local/packet_socket.h"
#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

std::string socket_of(const sluice_options& o, Rank first = 0) {
  SessionId session;
  std::ranges::copy(o.session_id, session.bytes.begin());
  return local::meeting_socket_name(session, first);
}

class MeetingStrangers : public LocalTestBed {};

// Whoever is at the session's socket first, but is no rank of it.
TEST_F(MeetingStrangers, AreIgnored) {
  for (int i = 0; i < 20; ++i) {
    SetUp();
    std::atomic<bool> done{false};
    std::thread stranger([&, name = socket_of(options_for(0, 3))] {
      while (!done) {
        auto socket = local::connect_at(name);
        if (!socket) continue;
        for (const size_t size : {1UL, 40UL, 300UL})
          static_cast<void>(local::send_packet(*socket, std::vector<std::byte>(size, std::byte{1})));
      }
    });
    run(3, [](uint32_t /*rank*/, sluice_session* s) {
      std::vector<float> x(10, 1);
      EXPECT_EQ(sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM), SLUICE_OK);
      EXPECT_EQ(x[9], 3);
    });
    done = true;
    stranger.join();
  }
}

TEST_F(MeetingStrangers, OfAnotherUserAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become another user";
  const sluice_options o = options_for(0, 2);
  const std::string name = socket_of(o);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool is_other_user = ::setuid(65534) == 0;
    const auto listener = local::listen_at(name, 4);
    const char ready = is_other_user && listener ? 'y' : 'n';
    static_cast<void>(::write(pipe[1], &ready, 1));
    while (true) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(pipe[0], &ready, 1), 1);
  ASSERT_EQ(ready, 'y');
  const Created c = create_session(o);
  EXPECT_EQ(c.status, SLUICE_REFUSED);
  EXPECT_EQ(c.error,
            "process " + std::to_string(squatter) + " of user 65534 holds the socket of this session");
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// They are counted too: another user must not fill this one's log.
TEST_F(MeetingStrangers, OfAnotherUserCauseOneLine) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become another user";
  const std::string name = socket_of(options_for(1, 2));
  const pid_t other = ::fork();
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::setuid(65534) != 0) ::_exit(2);
    int refused = 0;
    const bool done = eventually([&] {
      auto socket = local::connect_at(name);
      if (!socket) return false;
      // The leader closes it.
      return !local::wait_for_packet(*socket, monotonic_now() + 20 * kSecond) && ++refused == 100;
    });
    ::_exit(done ? 0 : 3);
  }
  ::testing::internal::CaptureStderr();
  std::thread leader([this] {
    const Created c = create_session(options_for(0, 2));
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    sluice_session_close(c.session);
  });
  int exited = 0;
  ::waitpid(other, &exited, 0);
  EXPECT_EQ(exited, 0);
  const Created c = create_session(options_for(1, 2));
  EXPECT_EQ(c.status, SLUICE_OK) << c.error;
  leader.join();
  sluice_session_close(c.session);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::HasSubstr(
                       "refused 100 connections of other users at the socket of this session, the first "
                       "of process " +
                       std::to_string(other) + " of user 65534"));
  EXPECT_EQ(log.find("refused"), log.rfind("refused")) << log;
}

// One line, however many come.
TEST_F(MeetingStrangers, AreCountedInTheLog) {
  ::testing::internal::CaptureStderr();
  std::thread leader([this] {
    const Created c = create_session(options_for(0, 2));
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    sluice_session_close(c.session);
  });
  for (int i = 0; i < 3; ++i) {
    std::optional<local::Socket> socket;
    EXPECT_TRUE(eventually([&] {
      if (auto connected = local::connect_at(socket_of(options_for(1, 2)))) socket = std::move(*connected);
      return socket.has_value();
    }));
    if (!socket) break;
    EXPECT_TRUE(local::send_packet(*socket, std::vector<std::byte>(40, std::byte{1})).ok());
    const auto answer = local::wait_for_packet(*socket, monotonic_now() + 20 * kSecond);
    EXPECT_FALSE(answer.has_value());
  }
  const Created c = create_session(options_for(1, 2));
  EXPECT_EQ(c.status, SLUICE_OK) << c.error;
  leader.join();
  sluice_session_close(c.session);
  const std::string log = ::testing::internal::GetCapturedStderr();
  constexpr const char* kLine =
      "refused 3 connections at the socket of this session that did not prove the job token";
  EXPECT_THAT(log, ::testing::HasSubstr(kLine));
  EXPECT_EQ(log.find("refused"), log.rfind("refused")) << log;
}

class StrangersOfHosts : public Rails {
 protected:
  // `act` gets a connection of a rank, with its first packet.
  using Act = std::function<void(local::Socket&)>;

  // Listens in place of the ranks of host 0.
  static void squat(const std::string& name, const Act& act) {
    auto listener = local::listen_at(name, 16);
    if (!listener) ::_exit(6);
    std::thread([listener = std::make_shared<local::Socket>(std::move(*listener)), act] {
      std::vector<local::Socket> kept;
      while (true) {
        pollfd next{.fd = listener->fd(), .events = POLLIN, .revents = 0};
        ::poll(&next, 1, -1);
        auto socket = local::accept_from(*listener);
        if (!socket || !socket->valid()) continue;
        act(*socket);
        kept.push_back(std::move(*socket));
      }
    }).detach();
  }

  void expect_flat(const Act& act, const std::string& reason) {
    for (const size_t reducers : {size_t{1}, size_t{0}}) {
      SCOPED_TRACE(reason + ", reducers: " + std::to_string(reducers));
      SetUp();
      run_hosts(
          {0, 0, 1}, reducers,
          [](uint32_t rank, sluice_session* s) {
            std::vector<float> x(100'000, static_cast<float>(rank + 1));
            if (sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM) != SLUICE_OK)
              return 81;
            return x[7] == 6 && x.back() == 6 ? 0 : 82;
          },
          ~0U,
          [&](uint32_t rank, sluice_options& o) {
            o.join_timeout_ms = 6000;
            // Rank 2 comes to the agreement on hosts behind that, so no rank of host 0 is at the socket yet.
            if (rank == 2) squat(socket_of(o), act);
          });
      EXPECT_EQ(count_logged("no host shares memory, so each rank sends its data: on the host of rank 0"),
                1U);
      EXPECT_EQ(count_logged(reason), 1U);
    }
  }
};

TEST_F(StrangersOfHosts, ThatHangUpMakeAllSendTheirData) {
  expect_flat([](local::Socket& s) { s = {}; },
              "has not proved the job token: leader of the ranks on this host: connection closed");
}

TEST_F(StrangersOfHosts, ThatSendGarbageMakeAllSendTheirData) {
  const auto send = [](size_t size) {
    return [size](local::Socket& s) {
      static_cast<void>(local::send_packet(s, std::vector<std::byte>(size, std::byte{77})));
    };
  };
  const char* const reason = "malformed packet";
  expect_flat(send(100), reason);
  expect_flat(send(local::kMaxPacket + 1), reason);
}

TEST_F(StrangersOfHosts, ThatSayThatARankIsLostMakeAllSendTheirData) {
  expect_flat(
      [](local::Socket& s) {
        std::vector<std::byte> packet{static_cast<std::byte>(local::PacketType::kVerdict)};
        const local::LocalVerdict verdict{.code = Errc::kPeerLost, .text = "rank 1 lost"};
        for (const std::byte b : wire::encode_body(verdict)) packet.push_back(b);
        static_cast<void>(local::send_packet(s, packet));
      },
      "has not proved the job token: rank 1 lost");
}

}  // namespace
}  // namespace sluice::test
