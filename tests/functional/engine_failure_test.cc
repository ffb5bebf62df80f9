// The errors that every rank of a training job gets when an operation, a join or a peer fails.
#include <sys/socket.h>

#include <algorithm>
#include <latch>

#include "config/secret_file.h"
#include "gpu_client/api/options.h"
#include "tests/functional/engine_test_bed.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temporary_file.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string secret(uint8_t first_byte) {
  config::Secret bytes{};
  bytes[0] = first_byte;
  return config::secret_text(bytes);
}

class EngineFailure : public EngineTestBed {
 protected:
  // Creates the session on all ranks, with the options that `adjust` sets.
  std::vector<Created> create_all(uint32_t ranks,
                                  const std::function<void(uint32_t, sluice_options&)>& adjust = nullptr) {
    std::vector<Created> out(ranks);
    each_rank(ranks, [&](uint32_t rank) {
      sluice_options o = options_for(rank, ranks);
      if (adjust) adjust(rank, o);
      out[rank] = create(o);
    });
    return out;
  }
  // Does the same and expects that all ranks join.
  std::vector<sluice_session*> join_all(
      uint32_t ranks, const std::function<void(uint32_t, sluice_options&)>& adjust = nullptr) {
    std::vector<sluice_session*> out;
    for (const Created& c : create_all(ranks, adjust)) {
      EXPECT_EQ(c.status, SLUICE_OK) << c.error;
      out.push_back(c.session);
    }
    return out;
  }
  static void expect_all(const std::vector<Created>& sessions, sluice_status status,
                         const ::testing::Matcher<std::string>& error) {
    for (const Created& c : sessions) {
      EXPECT_EQ(c.status, status) << c.error;
      EXPECT_THAT(c.error, error);
    }
  }
  static void close_all(const std::vector<sluice_session*>& sessions) {
    each_rank(static_cast<uint32_t>(sessions.size()),
              [&](uint32_t r) { static_cast<void>(sluice_session_close(sessions[r])); });
  }
  // Runs a small allreduce on every rank, and closes the sessions.
  static void reduce_and_close(const std::vector<sluice_session*>& sessions) {
    each_rank(static_cast<uint32_t>(sessions.size()), [&](uint32_t r) {
      std::vector<float> x(1, 1.f);
      EXPECT_EQ(sum(sessions[r], x), SLUICE_OK);
    });
    close_all(sessions);
  }
};

TEST_F(EngineFailure, AuthenticatesBothSides) {
  const TemporaryFile key(secret(1));
  reducer::ReducerOptions o = reducer_options();
  o.key_file = key.path();
  start_reducers(2, o);
  reduce_and_close(
      join_all(2, [&](uint32_t, sluice_options& c) { c.key_file = o.key_file.c_str(), c.job = "train"; }));
}

TEST_F(EngineFailure, FailsWithAWrongOrMissingKey) {
  const TemporaryFile key(secret(1));
  reducer::ReducerOptions o = reducer_options();
  o.key_file = key.path();
  start_reducers(1, o);
  const TemporaryFile other(secret(2));
  expect_all(create_all(1, [&](uint32_t, sluice_options& c) { c.key_file = other.path().c_str(); }),
             SLUICE_REFUSED, AllOf(HasSubstr("reducer 127.0.0.1:"), HasSubstr("wrong token for job")));
  ++session_;
  expect_all(create_all(1), SLUICE_REFUSED, HasSubstr("requires the key of the pool"));
}

TEST_F(EngineFailure, RefusesAReducerWithoutAKey) {
  start_reducers(1);
  const TemporaryFile key(secret(1));
  expect_all(create_all(1, [&](uint32_t, sluice_options& o) { o.key_file = key.path().c_str(); }),
             SLUICE_REFUSED, HasSubstr("has no key to prove the job token"));
}

TEST_F(EngineFailure, NamesAnUnreachableReducer) {
  start_reducers(1);
  addresses_ += ",127.0.0.1:1";
  // Retried until the deadline.
  expect_all(create_all(1, [](uint32_t, sluice_options& o) { o.connect_timeout_ms = 100; }), SLUICE_TIMEOUT,
             AllOf(HasSubstr("reducer 127.0.0.1:1"), HasSubstr("refused")));
}

TEST_F(EngineFailure, FailsAtOnceForALocalAddressThatTheHostLacks) {
  start_reducers(1);
  for (const char* address : {"192.0.2.1", "nonsense"}) {  // an address for documentation (RFC 5737)
    const Nanos begin = monotonic_now();
    const auto sessions = create_all(1, [&](uint32_t, sluice_options& o) {
      o.interface_address = address;
      o.connect_timeout_ms = 20'000;
    });
    expect_all(sessions, SLUICE_INVALID_ARGUMENT, HasSubstr(address));
    EXPECT_LT(monotonic_now() - begin, 15 * kSecond) << "retries would be useless";
  }
}

TEST_F(EngineFailure, WaitsForAReducerThatStartsLate) {
  start_reducers(1);
  const ReservedPort port;
  reducer::ReducerOptions o = reducer_options();
  o.listen_port = port.number();
  addresses_ += ",127.0.0.1:" + std::to_string(o.listen_port);
  std::unique_ptr<reducer::Reducer> late;
  std::thread starter([&] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(100));  // the test case: later than the first attempt
    late = std::move(reducer::Reducer::start(o).value());
  });
  const auto sessions = join_all(2);
  starter.join();
  reduce_and_close(sessions);
}

TEST_F(EngineFailure, RefusesTheSameReducerUnderTwoNames) {
  start_reducers(1);
  const std::string port = addresses_.substr(addresses_.find(':'));
  addresses_ += ",localhost" + port;
  expect_all(create_all(1), SLUICE_INVALID_ARGUMENT, HasSubstr("same process"));
}

TEST_F(EngineFailure, NamesTheMissingRankOnAllOthers) {
  start_reducers(2);
  const auto sessions = create_all(2, [](uint32_t, sluice_options& o) {
    o.ranks = 3;
    o.join_timeout_ms = 300;
  });
  expect_all(sessions, SLUICE_TIMEOUT, HasSubstr("rank 2 did not join in time"));
}

TEST_F(EngineFailure, ReportsAMismatchAtJoinToAllRanks) {
  start_reducers(2);
  const auto sessions = create_all(3, [](uint32_t rank, sluice_options& o) {
    if (rank == 1) o.window_bytes = 4 << 20;
  });
  expect_all(sessions, SLUICE_MISMATCH,
             AllOf(HasSubstr("window bytes"), HasSubstr("4194304"), HasSubstr("2097152")));
}

TEST_F(EngineFailure, ReportsDifferentReducerListsToAllRanks) {
  start_reducers(2);
  const std::string first = addresses_.substr(0, addresses_.find(','));
  const auto sessions = create_all(2, [&](uint32_t rank, sluice_options& o) {
    if (rank == 1) o.reducers = first.c_str();
    o.join_timeout_ms = 1000;
  });
  if (is_colocated()) {
    // The ranks exchange data at the listed reducer with the lowest id, which both lists may or may not have.
    for (const Created& c : sessions) {
      EXPECT_THAT(c.status, ::testing::AnyOf(SLUICE_MISMATCH, SLUICE_TIMEOUT)) << c.error;
      EXPECT_THAT(c.error, ::testing::AnyOf(HasSubstr("rank 1 and rank 0 list different reducers"),
                                            HasSubstr("all ranks must list the same reducers")));
    }
  } else {
    expect_all(sessions, SLUICE_MISMATCH, HasSubstr("number of reducers"));
  }
}

TEST_F(EngineFailure, ReportsAnExceededMemoryLimitToAllRanks) {
  start_reducers(1);
  reducer::ReducerOptions small = reducer_options();
  small.memory_limit = 1 * kMiB;
  start_reducers(1, small);
  expect_all(create_all(2), SLUICE_REFUSED, AllOf(HasSubstr("needs"), HasSubstr("limit is 1048576")));
}

TEST_F(EngineFailure, ReportsADifferentOperationToAllRanks) {
  start_reducers(2);
  const auto sessions = join_all(3);
  each_rank(3, [&](uint32_t r) {
    std::vector<float> x(r == 2 ? 999 : 1000);
    EXPECT_EQ(sum(sessions[r], x), SLUICE_MISMATCH);
    EXPECT_THAT(reason_of(sessions[r]), AllOf(HasSubstr("1000"), HasSubstr("999"), HasSubstr("rank 2")));
    // The session stays failed.
    sluice_request request = 7;
    EXPECT_EQ(sum_async(sessions[r], x, request), SLUICE_MISMATCH);
    EXPECT_EQ(request, 0u);
    EXPECT_EQ(sluice_session_close(sessions[r]), SLUICE_MISMATCH);
  });
}

TEST_F(EngineFailure, ReportsATimeoutToTheOtherRanks) {
  start_reducers(2);
  const auto sessions = join_all(3, [](uint32_t rank, sluice_options& o) {
    if (rank != 2) o.progress_threads = rank;  // both modes
    if (rank == 2) o.op_timeout_ms = 1;        // this rank times out and aborts
  });
  std::latch together(3);
  each_rank(3, [&](uint32_t r) {
    std::vector<float> x(100'000);
    together.arrive_and_wait();
    if (r == 2) {
      EXPECT_EQ(sum(sessions[r], x), SLUICE_TIMEOUT);
      EXPECT_THAT(reason_of(sessions[r]), HasSubstr("timed out"));
    } else {
      // Contributes nothing until rank 2 has timed out, and then gets its error.
      char text[2048] = "";
      const Nanos deadline = monotonic_now() + 10 * kSecond;
      while (sluice_session_error(sessions[r], text, sizeof text) == SLUICE_OK &&
             monotonic_now() < deadline) {
        static_cast<void>(sluice_progress(sessions[r]));
        std::this_thread::yield();
      }
      EXPECT_THAT(text, AllOf(HasSubstr("rank 2"), HasSubstr("timed out")));
      EXPECT_EQ(sum(sessions[r], x), SLUICE_TIMEOUT);
    }
  });
  close_all(sessions);
}

TEST_F(EngineFailure, AbortEndsOpenOperationsOnAllRanksAtOnce) {
  start_reducers(2);
  const auto sessions = join_all(
      3, [](uint32_t rank, sluice_options& o) { o.linger_ms = 20'000, o.progress_threads = rank != 0; });
  EXPECT_EQ(sluice_session_abort(nullptr, "no session"), SLUICE_INVALID_ARGUMENT);
  // Ranks 0 and 2 wait for rank 1, which never contributes, without a time limit.
  const std::string reason = "new\nconfiguration " + std::string(1000, '!');
  std::latch aborted(1);
  std::thread aborter([&] {
    EXPECT_TRUE(eventually([&] {
      sluice_stats stats{};
      stats.struct_size = sizeof stats;
      return sluice_session_stats(sessions[2], &stats) == SLUICE_OK && stats.payload_bytes_out > 0;
    }));
    EXPECT_EQ(sluice_session_abort(sessions[2], reason.c_str()), SLUICE_OK);
    EXPECT_EQ(sluice_session_abort(sessions[2], "a second reason"), SLUICE_OK);
    aborted.count_down();
  });
  each_rank(3, [&](uint32_t r) {
    std::vector<float> x(100'000);
    const auto is_ended = [&] { return sluice_session_error(sessions[r], nullptr, 0) != SLUICE_OK; };
    if (r == 1) {
      EXPECT_TRUE(eventually(is_ended));
    }
    EXPECT_EQ(sum(sessions[r], x), r == 2 ? SLUICE_CLOSED : SLUICE_LOST);
    EXPECT_THAT(reason_of(sessions[r]),
                AllOf(HasSubstr("new configuration !!!"), HasSubstr(r == 2 ? "" : "rank 2")));
    if (r == 2) aborted.wait();  // close() frees the session
    const Nanos begin = monotonic_now();
    EXPECT_EQ(sluice_session_close(sessions[r]), r == 2 ? SLUICE_CLOSED : SLUICE_LOST);
    EXPECT_LT(monotonic_now() - begin, 10 * kSecond) << "less than the linger time";
  });
  aborter.join();
}

TEST_F(EngineFailure, ReportsALostRankToTheOtherRanks) {
  start_reducers(2);
  std::latch joined(3);
  each_rank(3, [&](uint32_t r) {
    const sluice_options o = options_for(r, 3);
    if (r == 2) {
      // Without close() the connections break, as when a process dies.
      auto session = std::move(engine::Session::create(api::read_options(o).value()).value());
      joined.arrive_and_wait();
      return;
    }
    const Created c = create(o);
    joined.arrive_and_wait();
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(100'000);
    EXPECT_EQ(sum(c.session, x), SLUICE_LOST);
    EXPECT_THAT(reason_of(c.session), HasSubstr("rank 2"));
    static_cast<void>(sluice_session_close(c.session));
  });
}

TEST_F(EngineFailure, ReportsAStoppedReducerWithoutKeptResults) {
  start_reducers(2);
  const auto sessions = join_all(2, [](uint32_t, sluice_options& o) { o.keep_results = 0; });
  std::thread stopper([&] { reducers_[1]->stop(); });
  each_rank(2, [&](uint32_t r) {
    std::vector<float> x(300'000);
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK) status = sum(sessions[r], x);
    EXPECT_EQ(status, SLUICE_LOST);
    EXPECT_THAT(reason_of(sessions[r]), HasSubstr("stopped"));
  });
  stopper.join();
  close_all(sessions);
}

TEST_F(EngineFailure, APoolThatDrainsCompletelyServesTheSessionToItsEnd) {
  start_reducers(3);
  const auto sessions = join_all(2);
  std::thread drainer([&] {
    for (const auto& r : reducers_) r->drain();
  });
  each_rank(2, [&](uint32_t r) {
    std::vector<float> x(100'000, 1.0F);
    for (int i = 0; i < 200; ++i) {
      std::fill(x.begin(), x.end(), 1.0F);
      ASSERT_EQ(sum(sessions[r], x), SLUICE_OK) << reason_of(sessions[r]);
      ASSERT_EQ(x[0], 2.0F);
    }
  });
  drainer.join();
  close_all(sessions);
  for (const auto& r : reducers_) EXPECT_EQ(r->wait(), reducer::ExitReason::kDrained);
}

TEST_F(EngineFailure, EndsWithRankLeftForARankThatContinuesAlone) {
  start_reducers(1);
  const auto sessions = join_all(2);
  EXPECT_EQ(sluice_session_close(sessions[0]), SLUICE_OK) << "the rank leaves after its last contribution";
  std::vector<float> x(1, 1.f);
  EXPECT_EQ(sum(sessions[1], x), SLUICE_CLOSED);
  EXPECT_THAT(reason_of(sessions[1]), HasSubstr("rank 0 left"));
  EXPECT_EQ(sluice_session_close(sessions[1]), SLUICE_CLOSED);
}

TEST_F(EngineFailure, CloseEndsOpenOperationsAfterTheLingerTime) {
  start_reducers(1);
  const auto sessions = join_all(2, [](uint32_t, sluice_options& o) { o.linger_ms = 100; });
  std::vector<float> x(1, 1.f);
  sluice_request request = 0;
  ASSERT_EQ(sum_async(sessions[0], x, request), SLUICE_OK);
  EXPECT_EQ(sluice_wait(sessions[0], request, 20), SLUICE_TIMEOUT) << "the other rank never contributes";
  EXPECT_EQ(sluice_session_close(sessions[0]), SLUICE_TIMEOUT);
  static_cast<void>(sluice_session_close(sessions[1]));
}

TEST_F(EngineFailure, WaitsForALateRankAndReportsIt) {
  start_reducers(2);
  const auto sessions = join_all(2);
  std::vector<float> x(1, 1.f);
  sluice_request request = 0;
  ASSERT_EQ(sum_async(sessions[0], x, request), SLUICE_OK);
  sluice_stats stats{};
  stats.struct_size = sizeof stats;
  for (const Nanos deadline = monotonic_now() + 10 * kSecond;
       monotonic_now() < deadline && stats.missing_ranks == 0;) {
    EXPECT_EQ(sluice_wait(sessions[0], request, 20), SLUICE_TIMEOUT);
    ASSERT_EQ(sluice_session_stats(sessions[0], &stats), SLUICE_OK);
  }
  EXPECT_EQ(stats.missing_ranks, 1u);
  EXPECT_EQ(stats.missing_rank, 1u);
  EXPECT_EQ(stats.payload_bytes_out, 4u);
  EXPECT_EQ(stats.reducers, 2u);
  std::vector<float> y(1, 2.f);
  EXPECT_EQ(sum(sessions[1], y), SLUICE_OK);
  EXPECT_EQ(sluice_wait(sessions[0], request, -1), SLUICE_OK);
  EXPECT_EQ(x[0], 3.f);
  close_all(sessions);
}

TEST_F(EngineFailure, RejectsAnHttpServer) {
  auto listener = transport::tcp::listen_on("127.0.0.1", 0, {});
  ASSERT_TRUE(listener.has_value());
  addresses_ = "127.0.0.1:" + std::to_string(transport::tcp::bound_port(listener->fd()).value());
  std::thread server([&] {
    int fd = -1;
    while (fd < 0) fd = ::accept(listener->fd(), nullptr, nullptr);
    const transport::tcp::Socket peer(fd);
    const std::string reply =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n";
    static_cast<void>(
        transport::tcp::write_all(peer, std::as_bytes(std::span(reply)), monotonic_now() + kSecond));
    ::shutdown(fd, SHUT_WR);
    std::array<std::byte, 4096> rest;
    while (::recv(fd, rest.data(), rest.size(), 0) > 0) continue;
  });
  const auto sessions = create_all(1);
  server.join();
  expect_all(sessions, SLUICE_PROTOCOL,
             HasSubstr("does not speak the Sluice protocol: bad_magic while waiting for WELCOME"));
}

TEST_F(EngineFailure, RejectsInvalidOperations) {
  start_reducers(1);
  const auto sessions = join_all(1);
  sluice_session* const s = sessions[0];
  ASSERT_NE(s, nullptr);
  float x[4] = {1, 2, 3, 4};
  sluice_request r = 0;
  const auto expect_invalid = [&](const void* send, void* recv, size_t count, int dtype, int op) {
    EXPECT_EQ(sluice_allreduce_async(s, send, recv, count, static_cast<sluice_dtype>(dtype),
                                     static_cast<sluice_op>(op), &r),
              SLUICE_INVALID_ARGUMENT);
  };
  expect_invalid(nullptr, x, 1, SLUICE_F32, SLUICE_SUM);
  expect_invalid(x, x + 1, 2, SLUICE_F32, SLUICE_SUM);  // overlap
  expect_invalid(x, x, 1, 14, SLUICE_SUM);
  expect_invalid(x, x, 1, SLUICE_F32, 5);
  expect_invalid(x, x, SIZE_MAX / 2, SLUICE_F32, SLUICE_SUM);
  EXPECT_EQ(sluice_allreduce_async(s, x, x, 1, SLUICE_F32, SLUICE_SUM, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_wait(s, 12345, 0), SLUICE_INVALID_ARGUMENT);
  // The rejected calls used no operation number: later operations still work.
  EXPECT_EQ(sluice_allreduce(s, nullptr, nullptr, 0, SLUICE_F32, SLUICE_SUM), SLUICE_OK);
  ASSERT_EQ(sluice_allreduce_async(s, x, x, 4, SLUICE_F32, SLUICE_AVG, &r), SLUICE_OK);
  EXPECT_EQ(sluice_wait(s, r, -1), SLUICE_OK);
  EXPECT_EQ(sluice_wait(s, r, -1), SLUICE_INVALID_ARGUMENT) << "already released";
  EXPECT_EQ(x[3], 4.f);
  close_all(sessions);
}

}  // namespace
}  // namespace sluice::test
