// Sessions with co-located reducers: ranks in this process, each with its own reducer, over loopback.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/functional/colocation_test_bed.h"
#include "transport/tcp/connect.h"

namespace sluice::test {
namespace {

using engine::ColocationMode;

using ColocationTest = ColocationTestBed;

TEST_F(ColocationTest, SumsWithTheSameBitsForAnyPool) {
  for (size_t pool_size = 0; pool_size <= 4; ++pool_size) {
    SCOPED_TRACE(pool_size);
    expect_sums(4);
    ++tag;
    start_reducers(1);
  }
}

TEST_F(ColocationTest, NeedsNoPoolForAnyNumberOfRanks) {
  mode = ColocationMode::kAuto;
  for (const uint32_t ranks : {1U, 2U, 3U, 5U, 9U}) {
    SCOPED_TRACE(ranks);
    expect_sums(ranks);
    ++tag;
  }
}

// They come as fast as they can to the port where the ranks meet, and stay.
TEST_F(ColocationTest, SumsWhileStrangersConnect) {
  mode = ColocationMode::kAuto;
  std::atomic<bool> done{false};
  std::thread strangers([&] {
    std::deque<transport::tcp::Socket> kept;
    while (!done) {
      auto socket = transport::tcp::connect_to("127.0.0.1", rendezvous.number(), {},
                                               monotonic_now() + 100 * kMillisecond);
      if (socket) kept.push_back(std::move(*socket));
      if (kept.size() > 100) kept.pop_front();
      ::poll(nullptr, 0, 2);
    }
  });
  for (const uint32_t ranks : {2U, 5U}) {
    expect_sums(ranks);
    ++tag;
  }
  done = true;
  strangers.join();
}

TEST_F(ColocationTest, ProvesTheTokenOfTheJob) {
  token.emplace();
  token->fill(7);
  expect_sums(3);
  ++tag;
  const auto errors = run(
      2,
      [](uint32_t rank, engine::SessionOptions& o) {
        o.join.join_timeout = 4 * kSecond;
        if (rank == 1) o.join.identity.token->fill(8);
      },
      nullptr);
  EXPECT_NE(errors[1].find("wrong token for job"), std::string::npos) << errors[1];
}

TEST_F(ColocationTest, RefusesRanksWithDifferentModes) {
  expect_all(run(
                 3,
                 [](uint32_t rank, engine::SessionOptions& o) {
                   if (rank == 1) o.join.colocation.mode = ColocationMode::kAuto;
                 },
                 nullptr),
             "rank 1 has SLUICE_COLOCATED=auto, rank 0 has always");
}

TEST_F(ColocationTest, RefusesRanksThatRequireRdma) {
  expect_all(run(
                 3,
                 [](uint32_t rank, engine::SessionOptions& o) {
                   if (rank == 2) o.join.identity.lanes.rdma_required = true;
                 },
                 nullptr),
             "rank 2 requires RDMA, which co-located reducers do not use; set SLUICE_COLOCATED=off");
}

// Ranks may come in any order, and later than the time in which a reducer must answer.
TEST_F(ColocationTest, WaitsForRankZeroAsForAnyRank) {
  std::atomic<bool> others_wait{false};
  const auto errors = run(
      2,
      [&](uint32_t rank, engine::SessionOptions& o) {
        o.join.connect_timeout = 2 * kSecond;
        if (rank == 1) others_wait = true;
        const Nanos until = monotonic_now() + 3 * kSecond;
        while (rank == 0 && (!others_wait || monotonic_now() < until)) std::this_thread::yield();
      },
      nullptr);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(ColocationTest, TakesSlotsLargerThanADedicatedReducersDefault) {
  expect_sums(2, [](uint32_t, engine::SessionOptions& o) {
    o.join.slot_bytes = 2 * kMiB;
    o.join.window_bytes = 8 * kMiB;
  });
}

TEST_F(ColocationTest, RefusesALinkRateThatNoLinkHas) {
  expect_all(run(
                 3,
                 [](uint32_t rank, engine::SessionOptions& o) {
                   if (rank == 2) o.join.colocation.link_rate = 1'000'000'000'000'000'000;
                 },
                 nullptr),
             "rank 2 has a link rate of 1000000000000000000 bit/s");
}

TEST_F(ColocationTest, NamesTheRankThatDoesNotCome) {
  const auto errors = run(
      2,
      [](uint32_t, engine::SessionOptions& o) {
        o.join.identity.ranks = 3, o.join.join_timeout = 4 * kSecond;
      },
      nullptr);
  expect_all(errors, "rank 2 did not join in time");
}

// Class OtherPort is a reducer whose port the other ranks cannot reach.
class OtherPort final : public colocated::LocalReducer {
 public:
  OtherPort(std::unique_ptr<colocated::LocalReducer> inner, uint16_t port)
      : inner_(std::move(inner)), port_(port) {}
  uint64_t id() const noexcept override { return inner_->id(); }
  uint16_t port() const noexcept override { return port_; }
  Result<void> reserve(const colocated::LocalReducerRequest& request, uint32_t sessions) override {
    return inner_->reserve(request, sessions);
  }
  void wait_for_leave(Nanos deadline) noexcept override { inner_->wait_for_leave(deadline); }

 private:
  const std::unique_ptr<colocated::LocalReducer> inner_;
  const uint16_t port_;
};

TEST_F(ColocationTest, GivesNoShareToAReducerThatARankCannotReach) {
  const ReservedPort port;
  const uint16_t closed = port.number();
  expect_sums(4, [closed](uint32_t rank, engine::SessionOptions& o) {
    if (rank != 2) return;
    o.join.colocation.start_reducer =
        [closed, start = o.join.colocation.start_reducer](
            const colocated::LocalReducerRequest& r) -> Result<std::unique_ptr<colocated::LocalReducer>> {
      auto started = start(r);
      if (!started) return started;
      return std::make_unique<OtherPort>(std::move(*started), closed);
    };
  });
}

TEST_F(ColocationTest, GoesOnWhereARankCannotStartAReducer) {
  expect_sums(3, [](uint32_t rank, engine::SessionOptions& o) {
    if (rank != 1) return;
    o.join.colocation.start_reducer =
        [](const colocated::LocalReducerRequest&) -> Result<std::unique_ptr<colocated::LocalReducer>> {
      return fail(Errc::kSystem, "no thread available");
    };
  });
}

TEST_F(ColocationTest, GivesNoShareToARankWithoutMemoryForTheSession) {
  const auto small = [](uint32_t rank, engine::SessionOptions& o) {
    if (rank == 1) o.join.colocation.start_reducer = colocated::local_reducer_factory({.memory_limit = kMiB});
  };
  const auto errors = run(3, small, [](uint32_t rank, engine::Session& session) {
    EXPECT_EQ(session.stats().lane_connections, 2u) << "to the reducers of ranks 0 and 2";
    std::vector<float> data = values(rank, 300'001);
    sum(session, data);
    expect_same_bits(data, sum_as_tree(3, data.size()));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(ColocationTest, FailsEverywhereWhenNoRankHasAReducer) {
  const auto errors = run(
      2,
      [](uint32_t, engine::SessionOptions& o) {
        o.join.connect_timeout = kSecond;
        o.join.colocation.start_reducer =
            [](const colocated::LocalReducerRequest&) -> Result<std::unique_ptr<colocated::LocalReducer>> {
          return fail(Errc::kSystem, "no thread available");
        };
      },
      nullptr);
  EXPECT_NE(errors[0].find("no thread available"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1], "");
}

TEST_F(ColocationTest, LosesNothingWhenAllDedicatedReducersDieAndReturn) {
  start_reducers(2);
  constexpr int kOperations = 60;
  std::mutex mutex;
  int deaths = 0;
  const auto errors = run(3, nullptr, [&](uint32_t rank, engine::Session& session) {
    for (int i = 0; i < kOperations; ++i) {
      std::vector<float> data = values(rank, 100'000);
      sum(session, data);
      expect_same_bits(data, sum_as_tree(3, data.size()));
      if (rank != 0 || (i != 15 && i != 25 && i != 40)) continue;
      const std::lock_guard lock(mutex);
      if (++deaths <= 2) {
        reducers[static_cast<size_t>(deaths) - 1].reset();  // its connections break, and its port is closed
        continue;
      }
      reducer::ReducerOptions o;
      o.listen_port = pool[0].port;
      auto started = reducer::Reducer::start(o);
      ASSERT_TRUE(started) << started.error().text;
      reducers[0] = std::move(*started);
    }
    EXPECT_GE(session.stats().recovery.view_changes, 2u);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A view change in which the co-located reducers have no share, then the loss of all dedicated ones.
TEST_F(ColocationTest, KeepsReducersWithoutAShareReadyAcrossViewChanges) {
  start_reducers(4);
  const auto errors = run(3, nullptr, [&](uint32_t rank, engine::Session& session) {
    for (int i = 0; i < 60; ++i) {
      std::vector<float> data = values(rank, 100'000);
      sum(session, data);
      expect_same_bits(data, sum_as_tree(3, data.size()));
      if (rank == 0 && i == 10) reducers[3].reset();  // three are still a full pool
      if (rank == 0 && i >= 25 && i <= 45 && i % 10 == 5) reducers[static_cast<size_t>(i - 25) / 10].reset();
    }
    EXPECT_GE(session.stats().recovery.view_changes, 2u);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(ColocationTest, LeavesAFullPoolAlone) {
  mode = ColocationMode::kAuto;
  start_reducers(3);
  const auto lanes = [&](uint32_t ranks, ColocationMode with) {
    uint32_t count = 0;
    mode = with;
    const auto errors = run(ranks, nullptr, [&](uint32_t rank, engine::Session& session) {
      if (rank == 0) count = session.stats().lane_connections;
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    ++tag;
    return count;
  };
  EXPECT_EQ(lanes(3, ColocationMode::kAuto), 6u);
  EXPECT_EQ(lanes(3, ColocationMode::kOff), 6u);
  EXPECT_EQ(lanes(3, ColocationMode::kAlways), 9u);
}

TEST_F(ColocationTest, ReachesTheReducerOfItsOwnProcessThroughMemory) {
  constexpr size_t kCount = 1'000'000;
  const auto errors = run(2, nullptr, [&](uint32_t rank, engine::Session& session) {
    std::vector<float> data = values(rank, kCount);
    sum(session, data);
    expect_same_bits(data, sum_as_tree(2, data.size()));
    // Half of the chunks belong to the own reducer.
    const transport::EndpointCounters lanes = session.stats().lanes;
    EXPECT_EQ(lanes.payload_bytes_out, kCount * sizeof(float));
    EXPECT_GT(lanes.wire_bytes_out, kCount * sizeof(float) * 45 / 100);
    EXPECT_LT(lanes.wire_bytes_out, kCount * sizeof(float) * 55 / 100);
    EXPECT_LT(lanes.wire_bytes_in, kCount * sizeof(float) * 55 / 100);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The error of a connection to the port: 0 if something listens there.
int connect_error(uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const transport::tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
}

// A data loader is forked from a worker and lives on after the worker's session.
TEST_F(ColocationTest, AChildOfForkHasItsOwnReducerAndKeepsNoPortOpen) {
  start_reducers(1);
  std::mutex mutex;
  std::vector<uint16_t> ports;
  std::array<int, 2> parent_lives{};
  ASSERT_EQ(::pipe(parent_lives.data()), 0);
  pid_t child = -1;
  std::latch created_all(2);  // no lock of a starting session is held at the fork
  const auto errors = run(
      2,
      [&](uint32_t, engine::SessionOptions& o) {
        o.join.colocation.start_reducer = [&mutex, &ports, start = o.join.colocation.start_reducer](
                                              const colocated::LocalReducerRequest& r) {
          auto started = start(r);
          const std::lock_guard lock(mutex);
          if (started) ports.push_back((*started)->port());
          return started;
        };
      },
      [&](uint32_t rank, engine::Session& session) {
        created_all.arrive_and_wait();
        if (rank == 0) {
          engine::SessionOptions own = options(0, 1);
          own.join.identity.session = session_id(99);
          child = ::fork();
          if (child == 0) {
            ::alarm(20);
            ::close(parent_lives[1]);
#ifndef __SANITIZE_THREAD__  // it aborts a child that starts a thread
            auto created = engine::Session::create(std::move(own));
            if (!created) ::_exit(1);
            std::vector<float> data = values(0, 1000);
            sum(**created, data);
            // Two at the dedicated reducer, one at its own.
            const bool hosts = (*created)->stats().lane_connections == 3;
            if ((*created)->close().code() != Errc::kOk || !hosts) ::_exit(2);
#endif
            char end = 0;
            ::_exit(::read(parent_lives[0], &end, 1) == 0 ? 0 : 3);
          }
        }
        std::vector<float> data = values(rank, 1000);
        sum(session, data);
        expect_same_bits(data, sum_as_tree(2, data.size()));
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  ASSERT_GT(child, 0);
  EXPECT_EQ(ports.size(), 2u);
  for (const uint16_t port : ports) EXPECT_EQ(connect_error(port), ECONNREFUSED);
  ::close(parent_lives[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(parent_lives[0]);
}

TEST_F(ColocationTest, RefusesAStrangerAtACoLocatedReducer) {
  std::mutex mutex;
  std::vector<uint16_t> ports;
  const auto errors = run(
      2,
      [&](uint32_t, engine::SessionOptions& o) {
        o.join.colocation.start_reducer = [&mutex, &ports, start = o.join.colocation.start_reducer](
                                              const colocated::LocalReducerRequest& r) {
          auto started = start(r);
          const std::lock_guard lock(mutex);
          if (started) ports.push_back((*started)->port());
          return started;
        };
      },
      [&](uint32_t rank, engine::Session& session) {
        if (rank == 0) {
          const std::lock_guard lock(mutex);
          for (const uint16_t port : ports) {
            ScriptedConnection stranger(port);
            wire::Hello hello;
            hello.session = session_id(200);
            hello.ranks = 2;
            stranger.send(hello);
            EXPECT_EQ(stranger.expect<wire::Refused>().code, Errc::kUnknownSession);
          }
        }
        std::vector<float> data = values(rank, 1000);
        sum(session, data);
        expect_same_bits(data, sum_as_tree(2, data.size()));
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(ports.size(), 2u);
}

}  // namespace
}  // namespace sluice::test
