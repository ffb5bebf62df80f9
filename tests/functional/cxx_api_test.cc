// The C++ API of sluice.hpp and streams.hpp.
#include <sluice/streams.hpp>

#include "tests/functional/engine_test_bed.h"

namespace sluice::test {
namespace {

using client::Options;
using client::Request;
using client::Session;

class CxxApi : public EngineTestBed {
 protected:
  [[nodiscard]] Options cxx_options(uint32_t rank, uint32_t ranks) const {
    Options o;
    o.reducers = addresses_;
    o.session_id[0] = 9;
    o.rank = rank;
    o.ranks = ranks;
    return o;
  }
};

TEST_F(CxxApi, ReducesEveryArithmeticType) {
  start_reducers(1);
  each_rank(2, [&](uint32_t rank) {
    Session session(cxx_options(rank, 2));
    const auto check = [&](auto one) {
      using T = decltype(one);
      std::vector<T> v(100, static_cast<T>(rank + 1));
      session.allreduce(v.data(), v.data(), v.size());
      EXPECT_EQ(v, std::vector<T>(100, static_cast<T>(3)));
      session.allreduce(v.data(), v.data(), v.size(), SLUICE_MAX);
      EXPECT_EQ(v[0], static_cast<T>(3));
    };
    check(float{}), check(double{}), check(int8_t{}), check(uint8_t{}), check(int32_t{}), check(uint32_t{});
    check(int64_t{}), check(uint64_t{}), check(long{}), check(static_cast<unsigned long long>(0));
    EXPECT_EQ(session.stats().operations, 20u);
    session.close();
  });
}

TEST_F(CxxApi, StartsEveryCollective) {
  start_reducers(1);
  each_rank(2, [&](uint32_t rank) {
    Session session(cxx_options(rank, 2));
    const std::vector<float> whole = {1, 2, 3, 4, 5};
    const std::vector<size_t> counts = {2, 3};
    std::vector<float> part(counts[rank]), gathered(5), copied(3, static_cast<float>(rank)), sum(5);
    session.reduce_scatter_async(whole.data(), part.data(), 0, counts.data(), SLUICE_F32).wait();
    session.all_gather_async(part.data(), gathered.data(), 0, counts.data(), SLUICE_F32).wait();
    EXPECT_EQ(gathered, (std::vector<float>{2, 4, 6, 8, 10}));
    session.broadcast_async(copied.data(), copied.size(), SLUICE_F32, 1).wait();
    EXPECT_EQ(copied, std::vector<float>(3, 1));
    session.reduce_async(whole.data(), sum.data(), 5, SLUICE_F32, SLUICE_SUM, 1).wait();
    EXPECT_EQ(sum, rank == 1 ? gathered : std::vector<float>(5));
    EXPECT_THROW((void)session.broadcast_async(copied.data(), 3, SLUICE_F32, 2), client::Error);
    session.close();
  });
}

TEST_F(CxxApi, ARequestOwnsItsOperation) {
  start_reducers(1);
  each_rank(2, [&](uint32_t rank) {
    Session session(cxx_options(rank, 2));
    std::vector<float> a(5000, 1.f), b(5000, 2.f), c(5000, 3.f);
    Request first = session.allreduce_async(a.data(), a.data(), a.size());
    Request second = session.allreduce_async(b.data(), b.data(), b.size());
    { const Request dropped = session.allreduce_async(c.data(), c.data(), c.size()); }
    EXPECT_EQ(c[0], 6.f) << "the destructor of a request must wait";
    first.wait();
    first.wait();
    while (!second.test()) std::this_thread::yield();
    EXPECT_EQ(a[4999], 2.f);
    EXPECT_EQ(b[4999], 4.f);
  });
}

TEST_F(CxxApi, FindsTheReducersWhenTheOptionsNameNone) {
  start_reducers(1);
  Options options = cxx_options(0, 1);
  options.reducers.clear();
  ::setenv("SLUICE_REDUCERS", addresses_.c_str(), 1);
  Session session(options);
  ::unsetenv("SLUICE_REDUCERS");
  EXPECT_EQ(session.stats().reducers, 1u);
  session.close();
}

TEST_F(CxxApi, ChangesTheListOfReducers) {
  start_reducers(2);
  const std::string second = addresses_.substr(addresses_.find(',') + 1);
  addresses_.resize(addresses_.find(','));
  std::vector<int> iterations(2);
  each_rank(2, [&](uint32_t rank) {
    Session session(cxx_options(rank, 2));
    EXPECT_THROW(session.set_reducers("a,,b"), client::Error);
    if (rank == 0) {
      EXPECT_THROW(session.set_reducers(), client::Error) << "no file is watched";
    }
    session.set_reducers(second);  // on every rank; only the list of rank 0 takes effect
    for (float moved = 0; moved == 0; ++iterations[rank]) {
      std::vector<float> v(100'000, static_cast<float>(rank + 1));
      session.allreduce(v.data(), v.data(), v.size());
      ASSERT_EQ(v, std::vector<float>(100'000, 3.f));
      moved = rank == 0 && reducers_[0]->status_json().find("\"moved\":1") != std::string::npos ? 1.f : 0.f;
      session.allreduce(&moved, &moved, 1);
    }
    session.close();
  });
  EXPECT_EQ(iterations[0], iterations[1]);
  EXPECT_TRUE(
      eventually([&] { return reducers_[1]->status_json().find("\"completed\":1") != std::string::npos; }));
}

TEST_F(CxxApi, AbortsASession) {
  start_reducers(1);
  Session session(cxx_options(0, 1));
  session.abort("no more data");
  float x = 1;
  try {
    session.allreduce(&x, &x, 1);
    FAIL() << "expected an exception";
  } catch (const client::Error& e) {
    EXPECT_EQ(e.status(), SLUICE_CLOSED);
    EXPECT_EQ(std::string(e.what()), "no more data");
  }
}

TEST_F(CxxApi, RefusesAChangeOfReducersWithoutKeptResults) {
  start_reducers(1);
  Options o = cxx_options(0, 1);
  o.raw.keep_results = 0;
  Session session(o);
  try {
    session.set_reducers(addresses_);
    FAIL() << "expected an exception";
  } catch (const client::Error& e) {
    EXPECT_EQ(e.status(), SLUICE_UNSUPPORTED);
  }
}

TEST_F(CxxApi, AnExceptionContainsTheReason) {
  Options o = cxx_options(0, 1);
  o.reducers = "127.0.0.1:1";
  o.raw.connect_timeout_ms = 1;
  try {
    Session session(o);
    FAIL() << "expected an exception";
  } catch (const client::Error& e) {
    EXPECT_EQ(e.status(), SLUICE_TIMEOUT);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("127.0.0.1:1"));
  }
}

TEST_F(CxxApi, ReducesOnStreamsAndInGroups) {
  start_reducers(1);
  each_rank(2, [&](uint32_t rank) {
    Session session(cxx_options(rank, 2));
    client::HostStream stream;
    client::Streams streams(session);
    std::vector<float> a(5000, 1.f), b(5000, 2.f);
    float seen = 0;
    streams.allreduce(a.data(), a.data(), a.size(), SLUICE_SUM, stream.get());
    stream.submit([&] { seen = a[4999]; });
    stream.synchronize();
    EXPECT_EQ(seen, 2.f);
    Request request = streams.allreduce_async(a.data(), a.data(), a.size(), SLUICE_AVG, stream.get());
    request.wait();
    EXPECT_EQ(a[0], 2.f);
    streams
        .group_async([&] {
          streams.allreduce(a.data(), a.data(), a.size(), SLUICE_SUM, stream.get());
          streams.allreduce(b.data(), b.data(), b.size(), SLUICE_SUM, stream.get());
        })
        .wait();
    EXPECT_EQ(a[0], 4.f);
    EXPECT_EQ(b[0], 4.f);
    EXPECT_EQ(streams.stats().rounds, 3u);
    streams.group([&] { streams.allreduce(b.data(), b.data(), b.size(), SLUICE_SUM, stream.get()); });
    stream.synchronize();
    EXPECT_EQ(b[0], 8.f);
    std::vector<float> part(2500), whole(5000);
    streams.reduce_scatter(a.data(), part.data(), part.size(), SLUICE_SUM, stream.get());
    streams.all_gather(part.data(), whole.data(), part.size(), stream.get());
    streams.reduce(whole.data(), whole.data(), whole.size(), SLUICE_SUM, 1, stream.get());
    streams.broadcast(whole.data(), whole.size(), 1, stream.get());
    stream.synchronize();
    EXPECT_EQ(whole, std::vector<float>(5000, 16.f));
    const auto throwing = [&] {
      streams.allreduce(b.data(), b.data(), b.size(), SLUICE_SUM, stream.get());
      throw std::out_of_range("thrown by the body");
    };
    EXPECT_THROW(streams.group(throwing), std::out_of_range);
    EXPECT_EQ(streams.stats().rounds, 8u) << "an operation of the failed group ran";
    try {
      const client::Streams again(session);
      FAIL() << "expected an exception";
    } catch (const client::Error& error) {
      EXPECT_EQ(error.status(), SLUICE_INVALID_ARGUMENT);
      EXPECT_STREQ(error.what(), "the session already has streams");
    }
    session.close();
  });
}

}  // namespace
}  // namespace sluice::test
