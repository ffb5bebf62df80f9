#include "core/link_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

namespace sluice {
namespace {

LinkRates equal_rates(size_t workers, double pool) {
  LinkRates rates{.workers = std::vector<double>(workers, 1), .can_reduce = std::vector<bool>(workers, true)};
  if (pool > 0) rates.reducers = {pool};
  return rates;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The largest load over rate, written from the definition and not from the solution.
double time_of(const LinkRates& rates, const std::vector<double>& workers,
               const std::vector<double>& reducers) {
  const auto n = static_cast<double>(rates.workers.size());
  double time = 0;
  for (size_t w = 0; w < workers.size(); ++w) {
    const double as_worker = 1 - workers[w];
    const double as_reducer = (n - 1) * workers[w];
    time = std::max(time, (as_worker + as_reducer) / rates.workers[w]);
  }
  for (size_t r = 0; r < reducers.size(); ++r) time = std::max(time, n * reducers[r] / rates.reducers[r]);
  return time;
}

void expect_valid(const LinkRates& rates, const LinkSplit& split) {
  ASSERT_EQ(split.worker_shares.size(), rates.workers.size());
  ASSERT_EQ(split.reducer_shares.size(), rates.reducers.size());
  ASSERT_NEAR(sum(split.worker_shares) + sum(split.reducer_shares), 1, 1e-12);
  for (size_t w = 0; w < split.worker_shares.size(); ++w) {
    ASSERT_GE(split.worker_shares[w], 0);
    if (rates.can_reduce.empty() || !rates.can_reduce[w]) {
      ASSERT_EQ(split.worker_shares[w], 0) << w << " has no reducer";
    }
  }
  for (const double x : split.reducer_shares) ASSERT_GE(x, 0);
  const double measured = time_of(rates, split.worker_shares, split.reducer_shares);
  ASSERT_NEAR(split.time, measured, 1e-9 * measured);
}

// The least time by bisection over "do the shares that fit into this time add up to 1?".
double bisected_time(const LinkRates& rates) {
  const auto n = static_cast<double>(rates.workers.size());
  const auto fits = [&](double t) {
    double room = 0;
    for (size_t w = 0; w < rates.workers.size(); ++w) {
      const double spare = t * rates.workers[w] - 1;
      if (spare < 0) return false;
      if (!rates.can_reduce.empty() && rates.can_reduce[w]) room += n == 2 ? 1 : spare / (n - 2);
    }
    for (const double b : rates.reducers) room += t * b / n;
    return room >= 1;
  };
  double high = 1 / std::ranges::min(rates.workers);
  while (!fits(high)) high *= 2;
  double low = 0;
  for (int step = 0; step < 200; ++step) (fits((low + high) / 2) ? high : low) = (low + high) / 2;
  return high;
}

// "n, then the time for K = 0, n/4, n/2, 3n/4, n": the published bounds of equal links.
TEST(LinkSplit, GivesTheBoundsOfEqualLinks) {
  const struct {
    size_t n;
    double times[5];
  } rows[] = {{3, {1.333, 1.231, 1.143, 1.067, 1}},
              {4, {1.500, 1.333, 1.200, 1.091, 1}},
              {8, {1.750, 1.474, 1.273, 1.120, 1}},
              {16, {1.875, 1.538, 1.304, 1.132, 1}},
              {64, {1.969, 1.585, 1.326, 1.140, 1}}};
  for (const auto& row : rows) {
    for (size_t quarter = 0; quarter <= 4; ++quarter) {
      SCOPED_TRACE(std::to_string(row.n) + " workers, quarter " + std::to_string(quarter));
      const auto n = static_cast<double>(row.n);
      const double k = n * static_cast<double>(quarter) / 4;
      const LinkRates rates = equal_rates(row.n, k);
      const LinkSplit split = split_links(rates);
      expect_valid(rates, split);
      EXPECT_NEAR(split.time, row.times[quarter], 0.0005);
      const double b = (n - k) / (n * n + k * (n - 2));
      for (const double x : split.worker_shares) EXPECT_NEAR(x, b, 1e-14);
      EXPECT_NEAR(sum(split.reducer_shares), 1 - n * b, 1e-12);
      if (quarter == 0) {
        EXPECT_DOUBLE_EQ(split.time, 2 * (n - 1) / n) << "no pool: a ring's time";
      }
      if (quarter == 4) {
        EXPECT_EQ(split.time, 1);
        EXPECT_EQ(sum(split.worker_shares), 0) << "a full pool leaves exactly nothing";
      }
    }
  }
}

TEST(LinkSplit, RelievesASlowWorker) {
  const struct {
    size_t n;
    double rate, time;
  } rows[] = {{4, 0.75, 1.6}, {4, 0.5, 2}, {8, 0.5, 2}, {8, 0.25, 4}};
  for (const auto& row : rows) {
    LinkRates rates = equal_rates(row.n, 0);
    rates.workers[1] = row.rate;
    const LinkSplit split = split_links(rates);
    expect_valid(rates, split);
    EXPECT_NEAR(split.time, row.time, 1e-12) << row.n << " workers, one at " << row.rate;
    EXPECT_LT(split.worker_shares[1], split.worker_shares[0]);
    if (row.rate <= 0.5) {
      EXPECT_EQ(split.worker_shares[1], 0) << "its link is full without a share";
    }
  }
}

TEST(LinkSplit, UsesThePoolAloneWithoutCoLocatedReducers) {
  for (const bool empty : {true, false}) {
    LinkRates rates{.workers = {1, 1, 1, 1}, .can_reduce = {}, .reducers = {1, 0.5, 0.5}};
    if (!empty) rates.can_reduce = std::vector<bool>(4, false);
    const LinkSplit split = split_links(rates);
    expect_valid(rates, split);
    EXPECT_EQ(split.time, 2);
    EXPECT_EQ(split.reducer_shares, (std::vector<double>{0.5, 0.25, 0.25}));
  }
}

TEST(LinkSplit, GivesAFullPoolEverythingInProportionToItsRates) {
  // More than full, exactly full, and full but for the rounding of 0.1 + 0.1 + 0.1.
  const LinkRates cases[] = {
      {.workers = {10, 10, 7}, .can_reduce = {true, true, true}, .reducers = {20, 30}},
      {.workers = {25e9, 25e9}, .can_reduce = {true, true}, .reducers = {30e9, 20e9}},
      {.workers = {0.1, 0.1, 0.1}, .can_reduce = {true, true, true}, .reducers = {0.1, 0.1, 0.1}}};
  for (const LinkRates& rates : cases) {
    const LinkSplit split = split_links(rates);
    expect_valid(rates, split);
    EXPECT_NEAR(split.time, 1 / std::ranges::min(rates.workers), 1e-9 * split.time);
    for (const double x : split.worker_shares) EXPECT_EQ(x, 0);
    const double pool = sum(rates.reducers);
    for (size_t r = 0; r < rates.reducers.size(); ++r)
      EXPECT_DOUBLE_EQ(split.reducer_shares[r], rates.reducers[r] / pool);
  }
}

TEST(LinkSplit, PrefersThePoolWhereASlowWorkerSetsTheTime) {
  // The slow worker needs 4 by itself. In that time the pool can sum 2 * 4 / 4 of the data: all of it.
  LinkRates rates = equal_rates(4, 2);
  rates.workers[3] = 0.25;
  LinkSplit split = split_links(rates);
  EXPECT_EQ(split.time, 4);
  EXPECT_EQ(split.reducer_shares[0], 1);
  // A pool of 0.5 sums half of it. The others share the rest, and the slow worker gets nothing.
  rates.reducers = {0.5};
  split = split_links(rates);
  expect_valid(rates, split);
  EXPECT_EQ(split.time, 4);
  EXPECT_DOUBLE_EQ(split.reducer_shares[0], 0.5);
  for (size_t w = 0; w < 3; ++w) EXPECT_DOUBLE_EQ(split.worker_shares[w], 0.5 / 3);
  EXPECT_EQ(split.worker_shares[3], 0);
}

TEST(LinkSplit, IsDefinedForOneAndTwoWorkers) {
  LinkSplit split = split_links(equal_rates(1, 0));
  EXPECT_EQ(split.time, 0) << "one worker sums its own data in memory";
  EXPECT_EQ(split.worker_shares, std::vector<double>{1});
  split = split_links({.workers = {2}, .can_reduce = {false}, .reducers = {1}});
  EXPECT_EQ(split.time, 1);

  split = split_links(equal_rates(2, 0));
  EXPECT_EQ(split.time, 1);
  EXPECT_EQ(split.worker_shares, (std::vector<double>{0.5, 0.5}));
  const LinkRates one{.workers = {1, 0.5}, .can_reduce = {false, true}, .reducers = {0.5, 0.25}};
  split = split_links(one);
  expect_valid(one, split);
  EXPECT_EQ(split.time, 2) << "the slow link, whatever the split";
  EXPECT_EQ(split.reducer_shares, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(split.worker_shares, (std::vector<double>{0, 0.25}));
}

TEST(LinkSplit, StandsExtremeRatios) {
  for (const double ratio : {1e-6, 1e6}) {
    for (const size_t n : {1, 2, 3, 64}) {
      LinkRates rates = equal_rates(n, 0);
      rates.workers[0] = ratio;
      rates.reducers = {1, ratio};
      expect_valid(rates, split_links(rates));
    }
  }
  // A tiny pool beside equal workers is worth its rate and no more.
  EXPECT_NEAR(split_links(equal_rates(8, 1e-6)).time, 1.75, 1e-5);
}

TEST(LinkSplit, IsTheBestOfThousandsOfRandomCases) {
  std::mt19937_64 random(26);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(round);
    const size_t n = 2 + random() % 9;
    const double spread = uniform(0, 3);
    LinkRates rates;
    for (size_t w = 0; w < n; ++w) {
      rates.workers.push_back(std::exp(uniform(-spread, spread)));
      rates.can_reduce.push_back(random() % 4 != 0);
    }
    for (size_t r = random() % 5; r > 0; --r) rates.reducers.push_back(std::exp(uniform(-spread, spread)));
    if (rates.reducers.empty()) rates.can_reduce[random() % n] = true;
    const LinkSplit split = split_links(rates);
    expect_valid(rates, split);
    const double bisected = bisected_time(rates);
    ASSERT_NEAR(split.time, bisected, 1e-8 * bisected);

    // No other shares are faster: near the solution, and anywhere.
    for (int attempt = 0; attempt < 40; ++attempt) {
      std::vector<double> workers = split.worker_shares;
      std::vector<double> reducers = split.reducer_shares;
      const double step = attempt < 20 ? 1e-3 : 1;
      double total = 0;
      for (size_t w = 0; w < n; ++w)
        total += workers[w] = rates.can_reduce[w] ? std::max(0.0, workers[w] + uniform(-step, step)) : 0;
      for (double& x : reducers) total += x = std::max(0.0, x + uniform(-step, step));
      if (total <= 0) continue;
      for (double& x : workers) x /= total;
      for (double& x : reducers) x /= total;
      ASSERT_GE(time_of(rates, workers, reducers), split.time * (1 - 1e-9));
    }
    // A share moves to a dedicated reducer wherever that costs no time.
    if (sum(split.worker_shares) == 0) continue;
    for (size_t r = 0; r < rates.reducers.size(); ++r)
      ASSERT_NEAR(static_cast<double>(n) * split.reducer_shares[r] / rates.reducers[r], split.time,
                  1e-9 * split.time)
          << "reducer " << r << " could sum more";
  }
}

}  // namespace
}  // namespace sluice
