// Class LocalTestBed runs sessions whose ranks share this host. Ranks are threads that use only the C API,
// each with a mapping of its own of the shared memory.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sluice/sluice.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "tests/functional/created_session.h"

namespace sluice::test {

inline sluice_stats stats_of(sluice_session* session) {
  sluice_stats stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(sluice_session_stats(session, &stats), SLUICE_OK);
  return stats;
}

class LocalTestBed : public ::testing::Test {
 protected:
  // Nothing is configured: neither reducers nor where the ranks of several hosts could meet.
  void SetUp() override {
    for (const char* const name : {"SLUICE_REDUCERS", "SLUICE_RENDEZVOUS", "MASTER_ADDR", "SLUICE_HOSTS"})
      ::unsetenv(name);
    std::random_device random;
    for (uint8_t& byte : session_) byte = static_cast<uint8_t>(random());
  }

  [[nodiscard]] sluice_options options_for(uint32_t rank, uint32_t ranks) const {
    sluice_options o;
    sluice_options_init(&o);
    std::copy(session_.begin(), session_.end(), std::begin(o.session_id));
    o.rank = rank;
    o.ranks = ranks;
    o.join_timeout_ms = 20'000;
    return o;
  }

  static void each_rank(uint32_t ranks, const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
    for (std::thread& t : threads) t.join();
  }

  // Runs a session in which every rank joins, runs `body` and closes.
  void run(uint32_t ranks, const std::function<void(uint32_t rank, sluice_session*)>& body,
           const std::function<void(sluice_options&)>& adjust = nullptr) {
    each_rank(ranks, [&](uint32_t rank) {
      sluice_options o = options_for(rank, ranks);
      if (adjust) adjust(o);
      const Created c = create_session(o);
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      body(rank, c.session);
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK);
    });
  }

  // Waits until the condition holds. Returns false after 20 s.
  static bool eventually(const std::function<bool()>& condition) {
    for (const Nanos deadline = monotonic_now() + 20 * kSecond; !condition();) {
      if (monotonic_now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::array<uint8_t, 16> session_{};
};

}  // namespace sluice::test
