// Gradient health from the reducer's scan to sluice_next_finding().
#include <sluice/findings.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

#include "core/instrumented.h"
#include "tests/functional/streams_test_bed.h"

namespace sluice::test {
namespace {

constexpr float kHealthNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kHealthValues = 300'000;  // several chunks at every reducer

class Health : public StreamsTestBed {
 protected:
  void SetUp() override {
    if (is_colocated()) GTEST_SKIP() << "left out: co-located reducers do not scan contributions";
  }

 protected:
  void start_health_reducers(size_t count, bool health = true) {
    reducer::ReducerOptions options = reducer_options();
    options.health = health;
    start_reducers(count, options);
  }

  static std::optional<sluice_finding> next_finding(sluice_session* s) {
    sluice_finding f{};
    f.struct_size = sizeof f;
    const sluice_status status = sluice_next_finding(s, &f);
    if (status == SLUICE_OK) return f;
    EXPECT_EQ(status, SLUICE_AGAIN);
    return std::nullopt;
  }

  static void expect_finding(sluice_session* s, sluice_request request, sluice_finding_kind kind,
                             uint32_t rank, uint64_t count) {
    const auto f = next_finding(s);
    ASSERT_TRUE(f);
    EXPECT_EQ(f->request, request);
    EXPECT_EQ(f->kind, kind);
    EXPECT_EQ(f->rank, rank);
    EXPECT_EQ(f->count, count);
    if (kind == SLUICE_FINDING_OUTLIER) {
      EXPECT_GT(f->ratio, 1000);
    } else {
      EXPECT_EQ(f->ratio, 0);
    }
    EXPECT_FALSE(next_finding(s)) << "one for each operation";
  }
};

struct SickCase {
  sluice_finding_kind kind;
  uint64_t count;
};

// What rank 1 contributes in case `i`; rank 0 and 2 are well.
std::vector<float> sick_contribution(uint32_t rank, const std::optional<SickCase>& sick) {
  std::vector<float> x = gaussian(rank + 1, kHealthValues, 1e-2F);
  if (rank != 1 || !sick) return x;
  switch (sick->kind) {
    case SLUICE_FINDING_NON_FINITE:
      x[0] = x[kHealthValues / 2] = x[kHealthValues - 1] = kHealthNan;  // in several chunks
      break;
    case SLUICE_FINDING_OUTLIER: x[kHealthValues / 3] = 1e6F; break;
    case SLUICE_FINDING_ZEROS: std::ranges::fill(x, 0.F); break;
  }
  return x;
}

const std::optional<SickCase> kSickCases[] = {SickCase{SLUICE_FINDING_NON_FINITE, 3}, std::nullopt,
                                              SickCase{SLUICE_FINDING_OUTLIER, 0},
                                              SickCase{SLUICE_FINDING_ZEROS, 0}, std::nullopt};

TEST_F(Health, TheSameOperationNamesTheRank) {
  start_health_reducers(2);
  run_session(3, nullptr, [&](uint32_t rank, sluice_session* s) {
    for (const auto& sick : kSickCases) {
      std::vector<float> x = sick_contribution(rank, sick);
      sluice_request request = 0;
      ASSERT_EQ(sum_async(s, x, request), SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      if (sick) {
        expect_finding(s, request, sick->kind, 1, sick->count);
      } else {
        EXPECT_FALSE(next_finding(s));
      }
    }
  });
}

// Every defect is named with its rank and request, in the operation that has it, and nothing else is.
TEST_F(Health, NamesTheRankOfEachOf1000DefectsOfAKind) {
  constexpr int kDefects = SLUICE_INSTRUMENTED ? 100 : 1000;  // of each kind
  constexpr uint32_t kRanks = 4;
  constexpr size_t kValues = 20'000;
  start_health_reducers(2);
  run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
    std::mt19937_64 random(5);  // the same on all ranks
    const std::vector<float> well = gaussian(rank + 1, kValues, 1e-2F);
    const float largest =
        std::fabs(*std::ranges::max_element(well, {}, [](float v) { return std::fabs(v); }));
    for (int i = 0; i < 4 * kDefects; ++i) {
      const auto sick_rank = static_cast<uint32_t>(random() % kRanks);
      const size_t at = random() % kValues;
      std::vector<float> x = well;
      const int kind = i % 4;  // 3: no defect
      if (rank == sick_rank && kind == 0) x[at] = kHealthNan;
      if (rank == sick_rank && kind == 1) x[at] = 1e4F * largest;
      if (rank == sick_rank && kind == 2) std::ranges::fill(x, 0.F);
      sluice_request request = 0;
      ASSERT_EQ(sum_async(s, x, request), SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      constexpr sluice_finding_kind kKinds[] = {SLUICE_FINDING_NON_FINITE, SLUICE_FINDING_OUTLIER,
                                                SLUICE_FINDING_ZEROS};
      if (kind < 3) {
        expect_finding(s, request, kKinds[kind], sick_rank, kind == 0 ? 1 : 0);
      } else {
        EXPECT_FALSE(next_finding(s));
      }
      if (HasFailure()) return;
    }
  });
}

// Segments are several operations of the session; the caller knows one request.
TEST_F(Health, OperationsOnStreamsHaveOneFinding) {
  start_health_reducers(2);
  for (const uint32_t staged : {0U, 1U}) {
    run_streams(3, small_options(staged), [&](uint32_t rank, sluice_session* s) {
      ScopedHostStream stream;
      for (const auto& sick : kSickCases) {
        std::vector<float> x = sick_contribution(rank, sick);
        sluice_request request = 0;
        ASSERT_EQ(enqueue(s, x, stream.get(), &request), SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        if (sick) {
          expect_finding(s, request, sick->kind, 1, sick->count);
        } else {
          EXPECT_FALSE(next_finding(s));
        }
      }
    });
  }
}

// Part of an operation may be zero at a rank.
TEST_F(Health, ZerosInSomeChunksAreNoFinding) {
  start_health_reducers(1);
  run_session(3, nullptr, [&](uint32_t rank, sluice_session* s) {
    std::vector<float> x = sick_contribution(rank, std::nullopt);
    if (rank == 2) std::fill(x.begin() + 10, x.end(), 0.F);
    ASSERT_EQ(sum(s, x), SLUICE_OK);
    EXPECT_FALSE(next_finding(s));
  });
}

TEST_F(Health, TheLatestFindingsAreKept) {
  start_health_reducers(1);
  run_session(2, nullptr, [&](uint32_t rank, sluice_session* s) {
    std::vector<sluice_request> requests;
    for (int i = 0; i < 70; ++i) {
      std::vector<float> x(10, rank == 1 ? kHealthNan : 1.F);
      sluice_request request = 0;
      ASSERT_EQ(sum_async(s, x, request), SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      requests.push_back(request);
    }
    for (size_t i = 6; i < requests.size(); ++i) {
      const auto f = next_finding(s);
      ASSERT_TRUE(f);
      EXPECT_EQ(f->request, requests[i]);
      EXPECT_EQ(f->count, 10U);
    }
    EXPECT_FALSE(next_finding(s));
  });
}

TEST_F(Health, ReducersWithoutTheOptionReportNothing) {
  start_health_reducers(2, false);
  run_session(3, nullptr, [&](uint32_t rank, sluice_session* s) {
    for (const auto& sick : kSickCases) {
      std::vector<float> x = sick_contribution(rank, sick);
      ASSERT_EQ(sum(s, x), SLUICE_OK);
      EXPECT_FALSE(next_finding(s));
    }
  });
  EXPECT_FALSE(nlohmann::json::parse(reducers_[0]->status_json()).dump().find("\"zero_fraction\"") !=
               std::string::npos);
}

TEST_F(Health, TheStatusShowsTheRanks) {
  start_health_reducers(1);
  run_session(3, nullptr, [&](uint32_t rank, sluice_session* s) {
    std::vector<float> x(kHealthValues, 2.F);
    if (rank == 2) x[5] = kHealthNan;
    if (rank == 1) std::fill(x.begin() + kHealthValues / 2, x.end(), 0.F);
    ASSERT_EQ(sum(s, x), SLUICE_OK);
    if (rank != 0) return;
    const auto status = nlohmann::json::parse(reducers_[0]->status_json());
    EXPECT_EQ(status["findings"]["non_finite"], 1);
    const auto health = status["session_list"][0]["health"];
    EXPECT_EQ(health["findings"]["non_finite"], 1);
    ASSERT_EQ(health["ranks"].size(), 3U);
    const auto& worst = health["ranks"][0];
    EXPECT_EQ(worst["rank"], 2);
    EXPECT_EQ(worst["non_finite"], 1);
    EXPECT_EQ(worst["findings"]["non_finite"], 1);
    for (const auto& r : health["ranks"]) {
      EXPECT_EQ(r["largest"], 2.0);
      const double norm = r["norm"].get<double>(), zero_fraction = r["zero_fraction"].get<double>();
      EXPECT_NEAR(norm, 2 * std::sqrt((1 - zero_fraction) * kHealthValues), 1e-6 * kHealthValues);
      EXPECT_NEAR(zero_fraction, r["rank"] == 1 ? 0.5 : 0.0, 0.05);
    }
  });
}

TEST_F(Health, RefusesUnusableArguments) {
  start_health_reducers(1);
  run_session(1, nullptr, [&](uint32_t, sluice_session* s) {
    sluice_finding f{};
    EXPECT_EQ(sluice_next_finding(s, &f), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_next_finding(s, nullptr), SLUICE_INVALID_ARGUMENT);
    f.struct_size = sizeof f;
    EXPECT_EQ(sluice_next_finding(nullptr, &f), SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_next_finding(s, &f), SLUICE_AGAIN);
  });
}

}  // namespace
}  // namespace sluice::test
