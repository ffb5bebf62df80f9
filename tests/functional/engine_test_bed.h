// Class EngineTestBed runs reducers and ranks in one process over loopback, for end-to-end tests of the
// client library. Ranks are threads that use only the C API.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "reducer/reducer.h"
#include "tests/functional/created_session.h"
#ifdef SLUICE_TEST_ON_STREAMS
#include "tests/functional/redirect_to_streams.h"
#endif

namespace sluice::test {

#ifdef SLUICE_TEST_ON_STREAMS
inline constexpr bool kOnStreams = true;
#else
inline constexpr bool kOnStreams = false;
#endif

// True in the second run of a test program, with SLUICE_COLOCATED=always: each rank has a reducer besides the
// dedicated ones. Without the variable no rank has one, because the pool is on loopback.
inline bool is_colocated() {
  const char* const mode = std::getenv("SLUICE_COLOCATED");
  return mode != nullptr && std::string_view(mode) == "always";
}

inline Created create(const sluice_options& options) {
  const Created c = create_session(options);
#ifdef SLUICE_TEST_ON_STREAMS
  if (c.status == SLUICE_OK) {
    EXPECT_EQ(open_small_streams(c.session), SLUICE_OK) << sluice_refusal();
  }
#endif
  return c;
}

class EngineTestBed : public ::testing::Test {
 protected:
  // Ranks stand for hosts: else those of this process would share its memory, and the reducers get nothing.
  EngineTestBed() { ::setenv("SLUICE_HOSTS", "off", 1); }

  static reducer::ReducerOptions reducer_options() {
    reducer::ReducerOptions o;
    o.listen_port = 0;
    o.lanes = 2;
    o.memory_limit = 512 * kMiB;
    o.heartbeat = 100 * kMillisecond;
    o.peer_timeout = 5 * kSecond;
    o.linger_timeout = 2 * kSecond;
    return o;
  }

  void start_reducers(size_t count, const reducer::ReducerOptions& options = reducer_options()) {
    for (size_t i = 0; i < count; ++i) {
      auto started = reducer::Reducer::start(options);
      ASSERT_TRUE(started.has_value()) << started.error().text;
      if (!addresses_.empty()) addresses_ += ",";
      addresses_ += "127.0.0.1:" + std::to_string((*started)->port());
      reducers_.push_back(std::move(*started));
    }
  }

  [[nodiscard]] sluice_options options_for(uint32_t rank, uint32_t ranks) const {
    sluice_options o;
    sluice_options_init(&o);
    o.reducers = addresses_.c_str();
    o.session_id[0] = session_;
    o.session_id[15] = 1;
    o.rank = rank;
    o.ranks = ranks;
    o.connect_timeout_ms = 5000;
    o.join_timeout_ms = 10000;
    o.linger_ms = 3000;
    return o;
  }

  // Waits until the condition holds. Returns false after 20 s.
  static bool eventually(const std::function<bool()>& condition) {
    for (const Nanos deadline = monotonic_now() + 20 * kSecond; !condition();) {
      if (monotonic_now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // Runs `body` for each rank on a separate thread and joins the threads.
  static void each_rank(uint32_t ranks, const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
    for (std::thread& t : threads) t.join();
  }

  // Small integers: their sums are exact in any type and order.
  static std::vector<float> ramp(uint32_t rank, size_t count) {
    std::vector<float> v(count);
    for (size_t i = 0; i < count; ++i) v[i] = static_cast<float>((i * 7 + rank * 13) % 32);
    return v;
  }
  static std::vector<float> sum_of_ramps(uint32_t ranks, size_t count) {
    std::vector<float> v(count);
    for (uint32_t r = 0; r < ranks; ++r) std::ranges::transform(v, ramp(r, count), v.begin(), std::plus<>{});
    return v;
  }

  // Sums `x` over the ranks, in place.
  static sluice_status sum(sluice_session* s, std::vector<float>& x) {
    return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
  }
  static sluice_status sum_async(sluice_session* s, std::vector<float>& x, sluice_request& request) {
    return sluice_allreduce_async(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM, &request);
  }

  // Runs a session in which every rank joins, runs `body` and closes.
  void run_session(uint32_t ranks, const std::function<void(sluice_options&)>& adjust,
                   const std::function<void(uint32_t, sluice_session*)>& body) {
    each_rank(ranks, [&](uint32_t rank) {
      sluice_options o = options_for(rank, ranks);
      if (adjust) adjust(o);
      const Created c = create(o);
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      body(rank, c.session);
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK) << "rank " << rank;
    });
  }

  std::vector<std::unique_ptr<reducer::Reducer>> reducers_;
  std::string addresses_;
  uint8_t session_ = 1;
};

}  // namespace sluice::test
