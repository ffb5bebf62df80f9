#include "wire/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "core/instrumented.h"
#include "core/link_split.h"
#include "wire/view.h"

namespace sluice::wire {
namespace {

constexpr uint64_t kGbit = 1'000'000'000;

// n equal workers, each with a co-located reducer, and `pool` dedicated reducers of `rate`.
View co_located_view(uint32_t n, uint16_t pool, uint64_t rate = 10 * kGbit, uint16_t lanes = 1) {
  View v;
  v.worker_rates.assign(n, 10 * kGbit);
  for (uint16_t r = 0; r < pool; ++r)
    v.reducers.push_back({.id = uint64_t{0x100} + r, .lanes = lanes, .rate = rate});
  for (uint32_t w = 0; w < n; ++w) v.reducers.push_back({.id = uint64_t{0x1000} + w, .host_rank = w});
  return v;
}

std::vector<size_t> reducer_of_lane(const View& view) {
  std::vector<size_t> of;
  for (size_t r = 0; r < view.reducers.size(); ++r) of.insert(of.end(), view.reducers[r].lanes, r);
  return of;
}

// Turns of each reducer after each prefix of the sequence, twice around.
std::vector<std::vector<int64_t>> prefixes_of(const std::vector<uint32_t>& sequence, size_t reducers) {
  std::vector<std::vector<int64_t>> counts(1, std::vector<int64_t>(reducers, 0));
  for (size_t t = 0; t < 2 * sequence.size(); ++t) {
    counts.push_back(counts.back());
    ++counts.back()[sequence[t % sequence.size()]];
  }
  return counts;
}

// The largest distance from a share of all prefixes, and of all runs if `runs`, in chunks x period.
int64_t worst_distance(const std::vector<uint32_t>& quotas, bool runs) {
  const std::vector<uint32_t> sequence = turn_sequence(quotas);
  const auto period = static_cast<int64_t>(sequence.size());
  const auto counts = prefixes_of(sequence, quotas.size());
  int64_t worst = 0;
  for (size_t begin = 0; begin < (runs ? sequence.size() : 1); ++begin) {
    for (size_t length = 1; length <= sequence.size(); ++length) {
      for (size_t r = 0; r < quotas.size(); ++r) {
        const int64_t chunks = counts[begin + length][r] - counts[begin][r];
        worst = std::max(worst, std::abs(chunks * period - static_cast<int64_t>(length) * quotas[r]));
      }
    }
  }
  return worst;
}

void expect_quotas_met(const std::vector<uint32_t>& quotas) {
  std::vector<uint32_t> turns(quotas.size(), 0);
  for (const uint32_t r : turn_sequence(quotas)) ++turns[r];
  ASSERT_EQ(turns, quotas);
}

TEST(TurnSequence, KeepsEveryPrefixWithinOneChunkOfEachShare) {
  std::mt19937_64 random(1);
  int64_t worst_run = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<uint32_t> quotas(1 + random() % 12);
    const uint32_t largest = 1 + static_cast<uint32_t>(random() % 40);
    for (uint32_t& q : quotas) q = static_cast<uint32_t>(random() % (largest + 1));
    quotas[random() % quotas.size()] += 1;
    SCOPED_TRACE(testing::PrintToString(quotas));
    const int64_t period = std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
    expect_quotas_met(quotas);
    ASSERT_LT(worst_distance(quotas, false), period);
    const int64_t run = worst_distance(quotas, true);
    ASSERT_LT(run, 2 * period);
    worst_run = std::max(worst_run, 100 * run / period);
  }
  EXPECT_GT(worst_run, 100) << "the header says that runs of many different shares are less even";
}

TEST(TurnSequence, KeepsEveryRunWithinOneChunkForTwoQuotas) {
  for (uint32_t a = 1; a <= 12; ++a) {
    for (uint32_t b = 0; b <= 12; ++b) {
      for (uint32_t as = 1; as <= 3; ++as) {
        for (uint32_t bs = 1; bs <= 3; ++bs) {
          std::vector<uint32_t> quotas(as, a);
          quotas.insert(quotas.begin() + as / 2, bs, b);
          const int64_t period = std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
          ASSERT_LE(worst_distance(quotas, true), period) << testing::PrintToString(quotas);
        }
      }
    }
  }
}

TEST(TurnSequence, HandlesTheLongestPeriodAndExtremeQuotas) {
  for (const std::vector<uint32_t>& quotas :
       {std::vector<uint32_t>{kMaxPlacement}, {kMaxPlacement - 1, 1}, {kMaxPlacement - 3, 1, 0, 2}}) {
    expect_quotas_met(quotas);
    EXPECT_LT(worst_distance(quotas, false), kMaxPlacement);
  }
  std::vector<uint32_t> many(361);  // sum of 1 to 361 is 65341
  std::iota(many.begin(), many.end(), 1);
  expect_quotas_met(many);
  EXPECT_EQ(turn_sequence({2, 0, 1}), (std::vector<uint32_t>{0, 2, 0}));
}

TEST(TurnQuotas, FindTheLeastExactPeriod) {
  EXPECT_EQ(turn_quotas({1}, 2), (std::vector<uint32_t>{1}));
  EXPECT_EQ(turn_quotas({0.25, 0.25, 0.25, 0.25}, 100), (std::vector<uint32_t>{1, 1, 1, 1}));
  EXPECT_EQ(turn_quotas({0.3, 0.3, 0.1, 0.1, 0.1, 0.1}, 100), (std::vector<uint32_t>{3, 3, 1, 1, 1, 1}));
  EXPECT_EQ(turn_quotas({1.0 / 3, 0, 2.0 / 3}, 100), (std::vector<uint32_t>{1, 0, 2}));
}

TEST(TurnQuotas, ApproximateOtherSharesWithinTheLimit) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> shares(1 + random() % 1024);
    for (double& x : shares) x = static_cast<double>(1 + random() % 100'000);
    shares.front() = shares.back();
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& x : shares) x /= total;
    const std::vector<uint32_t> quotas = turn_quotas(shares, kMaxPlacement);
    const uint64_t period = std::accumulate(quotas.begin(), quotas.end(), uint64_t{0});
    ASSERT_LE(period, kMaxPlacement);
    ASSERT_EQ(quotas.front(), quotas.back()) << "equal shares";
    if (period < kMaxPlacement - shares.size()) continue;  // a least exact period
    const size_t turns = kMaxPlacement - shares.size() / 2;
    for (size_t i = 0; i < shares.size(); ++i)
      ASSERT_NEAR(quotas[i], shares[i] * static_cast<double>(turns), 0.5001);
  }
}

// The expected values are from an independent Python program, written from protocol.md section 8.
TEST(CoLocatedView, HasTheGoldenHashAndTable) {
  View v = co_located_view(4, 2, 10 * kGbit, 2);
  v.version = 3;
  v.window_bytes = 1 << 20;
  v.slot_bytes = 64 << 10;
  EXPECT_EQ(view_hash(v), 0x219e47bd46f2852u);
  EXPECT_EQ(placement_table(v),
            (std::vector<uint32_t>{0, 4, 2, 5, 1, 3, 6, 0, 7, 2, 1, 4, 3, 5, 0, 2, 6, 1, 7, 3}));
  v.reducers[0].alive = false;
  EXPECT_EQ(view_hash(v), 0xf0fd87ea7fc34ddau);
  EXPECT_EQ(placement_table(v), (std::vector<uint32_t>{4, 2, 5, 6, 3, 7, 4, 2, 5, 6, 3, 7}));
}

TEST(CoLocatedView, ChangesTheHashWithEachRateAndHost) {
  std::vector<uint64_t> seen;
  for (int change = 0; change < 6; ++change) {
    View v = co_located_view(3, 1);
    if (change == 1) v.worker_rates[2] += 1;
    if (change == 2) v.worker_rates.push_back(kGbit);
    if (change == 3) v.reducers[0].rate += 1;
    if (change == 4) v.reducers[1].rate = 1;
    if (change == 5) std::swap(v.reducers[1].host_rank, v.reducers[2].host_rank);
    EXPECT_EQ(std::ranges::count(seen, view_hash(v)), 0) << "change " << change;
    seen.push_back(view_hash(v));
  }
}

TEST(CoLocatedView, WithoutWorkerRatesIsTheViewOfEarlierReleases) {
  View v = co_located_view(2, 2, 7 * kGbit, 2);
  v.worker_rates.clear();
  View plain = v;
  for (ViewReducer& r : plain.reducers) r.rate = 0, r.host_rank = kNoRank;
  EXPECT_EQ(view_hash(v), view_hash(plain));
  EXPECT_EQ(placement_table(v), placement_table(plain));
  EXPECT_EQ(reducer_shares(v), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
}

// n workers and a pool of quarters of their bandwidth.
TEST(CoLocatedView, SpreadsEveryRunOfChunksForThePoolsOfEqualLinks) {
  for (const uint32_t n : {3u, 4u, 8u, 16u, 64u}) {
    for (uint16_t quarter = 0; quarter <= 4; ++quarter) {
      SCOPED_TRACE(std::to_string(n) + " workers, quarter " + std::to_string(quarter));
      const bool whole = n % 4 == 0;
      const auto pool = static_cast<uint16_t>(whole ? n * quarter / 4 : quarter);
      const View v = co_located_view(n, pool, whole ? 10 * kGbit : 10 * kGbit * n / 4);
      const auto table = placement_table(v);
      const auto period = static_cast<int64_t>(table.size());
      ASSERT_LE(table.size(), kMaxPlacement);
      const auto counts = prefixes_of(table, v.reducers.size());
      const std::vector<double> shares = reducer_shares(v);
      for (size_t r = 0; r < v.reducers.size(); ++r) {
        EXPECT_NEAR(static_cast<double>(counts[table.size()][r]), shares[r] * static_cast<double>(period),
                    1e-3);
        if (quarter == 4) {
          EXPECT_EQ(counts[table.size()][r] > 0, r < pool) << "a full pool needs nobody else";
        }
      }
      // Runs of up to two rounds over all reducers: longer runs repeat the argument for a prefix.
      const size_t longest = std::min<size_t>(table.size(), 2 * v.reducers.size());
      for (size_t begin = 0; begin < table.size(); ++begin) {
        for (size_t length = 1; length <= longest; ++length) {
          for (size_t r = 0; r < v.reducers.size(); r += n == 64 ? 9 : 1) {
            const int64_t chunks = counts[begin + length][r] - counts[begin][r];
            ASSERT_LE(std::abs(chunks * period - static_cast<int64_t>(length) * counts[table.size()][r]),
                      period)
                << length << " chunks from " << begin << ", reducer " << r;
          }
        }
        if (std::ranges::max(shares) < 0.5) {
          ASSERT_NE(table[begin], table[(begin + 1) % table.size()]) << "two chunks on one reducer";
        }
      }
    }
  }
}

TEST(CoLocatedView, CyclesThroughTheLanesOfEachReducer) {
  for (const uint16_t lanes : std::initializer_list<uint16_t>{2, 3, 4, 64}) {
    const View v = co_located_view(4, 2, 10 * kGbit, lanes);
    const auto of = reducer_of_lane(v);
    std::map<uint32_t, unsigned> turns;
    std::map<size_t, uint32_t> last;
    for (const uint32_t lane : placement_table(v)) {
      ++turns[lane];
      const size_t reducer = of[lane];
      if (reducer >= 2) continue;
      if (last.contains(reducer)) {
        EXPECT_EQ(lane, last[reducer] / lanes * lanes + (last[reducer] + 1) % lanes);
      }
      last[reducer] = lane;
    }
    for (uint32_t lane = 0; lane < of.size(); ++lane)
      EXPECT_EQ(turns[lane], (of[lane] < 2 ? 3u : uint32_t{lanes})) << lane;
  }
}

// The time of the table's own quotas, at most `excess` above the best.
void expect_close_to_best(const View& v, double excess) {
  const auto table = placement_table(v);
  ASSERT_LE(table.size(), kMaxPlacement);
  const auto of = reducer_of_lane(v);
  std::vector<double> share(v.reducers.size(), 0);
  std::vector<size_t> longest(v.reducers.size(), 0);  // run of chunks on the same reducer
  size_t run = 0;
  for (size_t t = 0; t < table.size(); ++t) {
    const size_t r = of[table[t]];
    share[r] += 1.0 / static_cast<double>(table.size());
    run = t > 0 && of[table[t - 1]] == r ? run + 1 : 1;
    longest[r] = std::max(longest[r], run);
  }
  for (size_t r = 0; r < share.size(); ++r) {
    if (share[r] < 0.999) {
      ASSERT_LT(static_cast<double>(longest[r]), 2 / (1 - share[r]))
          << "small operations wait for reducer " << r;
    }
  }
  LinkRates rates{.workers = {v.worker_rates.begin(), v.worker_rates.end()},
                  .can_reduce = std::vector<bool>(v.worker_rates.size(), false)};
  for (const ViewReducer& r : v.reducers) {
    if (!r.alive) continue;
    if (r.host_rank == kNoRank) {
      rates.reducers.push_back(static_cast<double>(r.rate));
    } else {
      rates.can_reduce[r.host_rank] = true;
    }
  }
  const double best = split_links(rates).time;
  const auto n = static_cast<double>(v.worker_rates.size());
  double time = 1 / std::ranges::min(rates.workers);
  for (size_t i = 0; i < v.reducers.size(); ++i) {
    const ViewReducer& r = v.reducers[i];
    ASSERT_TRUE(r.alive || share[i] == 0);
    time = std::max(time, r.host_rank == kNoRank ? n * share[i] / static_cast<double>(r.rate)
                                                 : (1 + (n - 2) * share[i]) / rates.workers[r.host_rank]);
  }
  ASSERT_LE(time, best * (1 + excess));
}

TEST(CoLocatedView, StaysCloseToTheBestTimeWhenReducersAreLost) {
  std::mt19937_64 random(3);
  constexpr int kLarge = SLUICE_INSTRUMENTED != 0 ? 2 : 5;  // rounds with 64 ranks
  for (int round = 0; round < 25 + kLarge; ++round) {
    const uint32_t n = round < kLarge ? 64 : 2 + static_cast<uint32_t>(random() % 16);
    View v = co_located_view(n, static_cast<uint16_t>(random() % 6), 10 * kGbit, 4);
    for (uint64_t& rate : v.worker_rates) rate = kGbit + random() % (99 * kGbit);
    for (ViewReducer& r : v.reducers)
      if (r.host_rank == kNoRank) r.rate = kGbit + random() % (99 * kGbit);
    for (size_t left = v.reducers.size(); left > 0; left /= 2) {
      SCOPED_TRACE("round " + std::to_string(round) + ", " + std::to_string(left) + " reducers left");
      expect_close_to_best(v, 0.002);
      for (size_t lost = left - left / 2; lost > 0 && left > 1;) {
        ViewReducer& r = v.reducers[random() % v.reducers.size()];
        lost -= r.alive ? 1 : 0;
        r.alive = false;
      }
    }
  }
}

TEST(CoLocatedView, CountsAReducerOfUnknownRateAsTheSlowestWorker) {
  View v = co_located_view(4, 2);
  v.worker_rates[1] = 5 * kGbit;
  v.reducers[1].rate = 0;
  View known = v;
  known.reducers[1].rate = 5 * kGbit;
  EXPECT_EQ(reducer_shares(v), reducer_shares(known));
  EXPECT_EQ(placement_table(v), placement_table(known));
}

TEST(CoLocatedView, PlacesForTheMostRanksAndReducers) {
  View v = co_located_view(1024, 0);
  for (size_t w = 0; w < v.worker_rates.size(); ++w) v.worker_rates[w] = 10 * kGbit + w * 1'000'003;
  const auto table = placement_table(v);
  EXPECT_LE(table.size(), kMaxPlacement);
  EXPECT_EQ(placement_table(v), table);
  v.worker_rates.assign(1024, kMaxLinkRate);
  v.worker_rates[0] = kMinLinkRate;
  EXPECT_EQ(reducer_shares(v)[0], 0);
  EXPECT_EQ(placement_table(v).size(), 1023u);
}

}  // namespace
}  // namespace sluice::wire
