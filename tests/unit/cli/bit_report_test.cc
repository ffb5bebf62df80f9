// Comparison of bit records: which operation differs, and which rank is wrong.
#include "cli/bits/bit_report.h"
#include "core/text_encoding.h"

#include <gtest/gtest.h>

#include <random>

#include "cli/bits/bit_comparison.h"
#include "core/crc32c.h"
#include "tests/unit/cli/bit_record_text.h"

namespace sluice::cli::test {
namespace {

using Operations = std::vector<engine::BitOperation>;

class BitReportTest : public ::testing::Test {
 protected:
  // Adds the record of a rank.
  void add(const RecordShape& shape, const Operations& operations, bool is_cut = false) {
    std::string text = record_text(shape, operations);
    if (is_cut) text.resize(text.find("# end") - 3);
    auto record = parse_bit_record(
        text, "session" + std::to_string(shape.session) + "-rank" + std::to_string(shape.rank));
    ASSERT_TRUE(record) << record.error().text;
    record->host = "gpu" + std::to_string(shape.rank);
    files_.records.push_back(std::move(*record));
  }
  // The session of four ranks with these operations, rank 2 with others.
  void add_session(uint8_t session, const Operations& all, const Operations& of_rank_2) {
    for (const uint32_t rank : {0u, 1u, 2u, 3u})
      add({.session = session, .rank = rank}, rank == 2 ? of_rank_2 : all);
  }
  [[nodiscard]] BitReport report() const {
    const auto runs = group_into_runs({files_});
    EXPECT_TRUE(runs) << runs.error().text;
    return report_bits(*runs, 3);
  }
  void expect_line(const std::string& line) const {
    const std::string text = report().text;
    EXPECT_NE(text.find(line + "\n"), text.npos) << text << "lacks: " << line;
  }
  BitRecordGroup files_;
};

TEST_F(BitReportTest, EqualRanks) {
  add_session(1, operations(1204), operations(1204));
  const BitReport r = report();
  EXPECT_EQ(r.compared, 1204u);
  EXPECT_EQ(r.different, 0u);
  const std::string running =
      hex_digits(files_.records[0].operations.back().running, engine::RunningHash::kDigits);
  expect_line("  1,204 operations equal on 4 ranks (running hash " + running + ")");
}

TEST_F(BitReportTest, NamesTheRankThatDiffers) {
  Operations changed = operations(20);
  changed[17].crc ^= 1;
  add_session(1, operations(20), changed);
  EXPECT_EQ(report().different, 1u);
  expect_line("  operation 17 (allreduce of 1024 f32, sum): rank 2 differs from ranks 0, 1, 3");
  expect_line("  1 of 20 operations differ");
  expect_line("  rank 2 on host gpu2 differs from most ranks in 1 operation");
}

TEST_F(BitReportTest, NamesTheRankAtAnyOperation) {
  for (size_t at = 0; at < 50; ++at) {
    files_ = {};
    Operations changed = operations(50);
    changed[at].crc ^= 0x80000000;
    add_session(1, operations(50), changed);
    const RankComparison c = compare_ranks((*group_into_runs({files_}))[0].sessions[0], 10);
    ASSERT_EQ(c.different, 1u) << at;
    EXPECT_EQ(c.differences[0].number, at);
    EXPECT_EQ(c.wrong, (std::map<uint32_t, uint64_t>{{2, 1}}));
    EXPECT_FALSE(c.running) << "the ranks have different running hashes";
  }
}

// Each operation's result has one bit flipped on one rank.
TEST_F(BitReportTest, NamesTheRankOfEachOf1000FlippedBits) {
  std::mt19937 random(7);
  std::vector<std::byte> result(4096);
  std::vector<Operations> recorded(4, operations(1000));
  std::vector<uint32_t> flipped(1000);
  for (size_t i = 0; i < flipped.size(); ++i) {
    for (std::byte& b : result) b = static_cast<std::byte>(random());
    const uint32_t right = crc32c(result);
    const size_t bit = random() % (8 * result.size());
    result[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    flipped[i] = random() % 4;
    for (uint32_t rank = 0; rank < 4; ++rank)
      recorded[rank][i].crc = rank == flipped[i] ? crc32c(result) : right;
  }
  for (uint32_t rank = 0; rank < 4; ++rank) add({.rank = rank}, recorded[rank]);
  const RankComparison c = compare_ranks((*group_into_runs({files_}))[0].sessions[0], 1000);
  ASSERT_EQ(c.differences.size(), 1000u);
  for (size_t i = 0; i < flipped.size(); ++i) {
    const OperationDifference& d = c.differences[i];
    ASSERT_TRUE(d.has_majority());
    ASSERT_EQ(d.groups.size(), 2u);
    ASSERT_EQ(d.groups[1].ranks, std::vector{flipped[i]}) << i;
  }
}

TEST_F(BitReportTest, NamesNoRankWithoutAMajority) {
  Operations changed = operations(2);
  changed[1].crc = 5;
  add({.rank = 0, .ranks = 2}, operations(2));
  add({.rank = 1, .ranks = 2}, changed);
  expect_line(
      "  operation 1 (allreduce of 1024 f32, sum): rank 0 has 9e3779b1; rank 1 has 00000005; no majority");
  EXPECT_EQ(report().text.find("on host"), std::string::npos);
}

TEST_F(BitReportTest, ListsTheFirstDifferencesAndCountsAll) {
  Operations changed = operations(20);
  for (size_t i = 5; i < 15; ++i) ++changed[i].crc;
  add_session(1, operations(20), changed);
  const std::string text = report().text;
  EXPECT_NE(text.find("operation 7 ("), text.npos) << text;
  EXPECT_EQ(text.find("operation 8 ("), text.npos) << text;
  expect_line("  10 of 20 operations differ");
}

TEST_F(BitReportTest, DoesNotCompareWhatIsDifferentOnEachRank) {
  for (const wire::Kind kind : {wire::Kind::kReduceScatter, wire::Kind::kReduce}) {
    files_ = {};
    for (const uint32_t rank : {0u, 1u}) {
      Operations own = operations(3);
      own[1] = {.number = 1, .count = 8, .crc = rank, .kind = kind};
      own[2] = {.number = 2, .count = 8, .state = engine::ResultState::kOnDevice};
      add({.rank = rank, .ranks = 2}, own);
    }
    EXPECT_EQ(report().compared, 1u);
    EXPECT_EQ(report().different, 0u);
    expect_line("  1 operation not compared: each rank has a result of its own");
    expect_line("  1 operation not compared: results in device memory");
  }
}

TEST_F(BitReportTest, ComparesUpToTheEndOfTheShortestRecord) {
  Operations changed = operations(20);
  changed[15].crc = 0;
  add({.rank = 0}, changed);
  add({.rank = 1}, operations(20));
  add({.rank = 2}, operations(11), true);
  EXPECT_EQ(report().compared, 10u) << "the last line is incomplete";
  EXPECT_EQ(report().different, 0u);
  expect_line("  rank 2: ends after operation 9 in an incomplete line: the process was killed or still runs");
}

TEST_F(BitReportTest, NamesARankWithAnotherCall) {
  Operations changed = operations(3);
  changed[1].count = 8;
  changed.erase(changed.begin() + 2);
  changed.push_back({.number = 3, .count = 9});
  Operations all = operations(4);
  add_session(1, all, changed);
  expect_line(
      "  operation 1 (allreduce of 1024 f32, sum): ranks 0, 1, 3 have allreduce of 1024 f32, sum; rank 2 has "
      "allreduce of 8 f32, sum");
  expect_line(
      "  operation 2 (allreduce of 1024 f32, sum): ranks 0, 1, 3 have allreduce of 1024 f32, sum; rank 2 has "
      "no "
      "such operation");
}

TEST_F(BitReportTest, EqualRuns) {
  add_session(1, operations(20), operations(20));
  add_session(2, operations(25), operations(25));
  EXPECT_EQ(report().different, 0u);
  expect_line("run B equals run A: 20 operations");
  expect_line("  compared up to operation 19: run A ends there");
}

TEST_F(BitReportTest, NamesTheFirstDifferenceOfARun) {
  Operations changed = operations(20);
  for (size_t i = 17; i < 20; ++i) ++changed[i].crc;
  add_session(1, operations(20), operations(20));
  add_session(2, changed, changed);
  EXPECT_EQ(report().different, 3u);
  expect_line(
      "run B differs from run A first at operation 17 (allreduce of 1024 f32, sum); 3 of 20 operations "
      "differ");
}

// The flip shows within run B; its other ranks have what run A has.
TEST_F(BitReportTest, OutvotesARankWithinItsRun) {
  Operations changed = operations(20);
  ++changed[3].crc;
  add_session(1, operations(20), operations(20));
  add_session(2, operations(20), changed);
  expect_line("  operation 3 (allreduce of 1024 f32, sum): rank 2 differs from ranks 0, 1, 3");
  expect_line("run B equals run A: 20 operations");
  EXPECT_EQ(report().different, 1u);
}

TEST_F(BitReportTest, ComparesAnyRankWhereAllHaveTheSameResult) {
  add({.session = 1, .rank = 0}, operations(20));
  add({.session = 2, .rank = 3}, operations(20));
  expect_line("run B equals run A: 20 operations");
  Operations changed = operations(20);
  ++changed[3].crc;
  add({.session = 3, .rank = 1}, changed);
  expect_line(
      "run C differs from run A first at operation 3 (allreduce of 1024 f32, sum); 1 of 20 operations "
      "differ");
}

TEST_F(BitReportTest, ComparesTheSameRankWhereEachHasItsOwnResult) {
  Operations own = operations(4, wire::Kind::kReduceScatter);
  for (const uint8_t session : {uint8_t{1}, uint8_t{2}}) {
    for (const uint32_t rank : {0u, 1u, 2u}) {
      for (engine::BitOperation& o : own) o.crc = rank + (session == 2 && rank == 1 && o.number > 1 ? 7 : 0);
      add({.session = session, .rank = rank}, own);
    }
  }
  expect_line(
      "run B differs from run A first at operation 2 (reduce-scatter of 1024 f32, sum) on rank 1; 2 of 4 "
      "operations "
      "differ");
  files_.records.erase(files_.records.begin() + 1,
                       files_.records.begin() + 4);  // rank 0 of run A, ranks 1, 2 of B
  expect_line("run B and run A have no result to compare");
  EXPECT_FALSE(report().is_complete);
}

// A script must not take these for equal.
TEST_F(BitReportTest, IsIncompleteWithoutAResultToCompare) {
  add({.rank = 0}, operations(3));
  EXPECT_FALSE(report().is_complete) << "one rank alone";
  add({.rank = 1}, {});
  EXPECT_FALSE(report().is_complete) << "the session of a rank that was killed at once";
  files_.records.pop_back();
  add({.rank = 1}, operations(3));
  EXPECT_TRUE(report().is_complete);
  add({.session = 2, .rank = 1}, {});
  EXPECT_FALSE(report().is_complete);
  expect_line("run B and run A have no result to compare");
}

TEST_F(BitReportTest, RunsThatCallOtherOperationsDiffer) {
  Operations changed = operations(20);
  changed[4].dtype = wire::DType::kBf16;
  add_session(1, operations(20), operations(20));
  add_session(2, changed, changed);
  expect_line(
      "run B differs from run A first at operation 4 (allreduce of 1024 f32, sum): allreduce of 1024 bf16, "
      "sum, "
      "not allreduce of 1024 f32, sum; 1 of 20 operations differ");
  files_ = {};
  add({.session = 1, .rank = 0, .ranks = 2}, operations(2));
  add({.session = 2, .rank = 0, .ranks = 3}, operations(2));
  expect_line("run B differs from run A: 3 ranks, not 2");
}

TEST_F(BitReportTest, ASecondRecordOfARankIsAnotherRun) {
  for (int run = 0; run < 2; ++run) {
    for (const uint32_t rank : {0u, 1u}) add({.rank = rank, .ranks = 2}, operations(3));
  }
  expect_line("run B equals run A: 3 operations");
}

TEST_F(BitReportTest, AFolderIsARunOfSeveralSessions) {
  const auto folder = [&](uint8_t first) {
    files_ = {.is_folder = true, .records = {}};
    for (const uint8_t session : {first, static_cast<uint8_t>(first + 1)}) {
      add({.session = session, .rank = 0, .ranks = 1},
          operations(first == 5 && session == 6 ? 1 : session % 2 + 1));
      files_.records.back().started = "2026-01-01T00:00:00.00" + std::to_string(9 - session % 2) + "Z";
    }
    return files_;
  };
  const auto runs = group_into_runs({folder(1), folder(3)});
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ((*runs)[0].sessions[0].records[0].operations.size(), 2u) << "in the order of their begin";
  const BitReport r = report_bits(*runs, 3);
  EXPECT_NE(r.text.find("run B session 1 equals run A session 1: 2 operations\n"), r.text.npos) << r.text;
  EXPECT_NE(r.text.find("run B session 2 equals run A session 2: 1 operation\n"), r.text.npos) << r.text;
  EXPECT_EQ(r.different, 0u);
  BitRecordGroup twice = folder(1);
  twice.records.push_back(twice.records.front());
  EXPECT_FALSE(group_into_runs({twice}));
  BitRecordGroup less = folder(3);
  less.records.pop_back();
  EXPECT_EQ(report_bits(*group_into_runs({folder(1), less}), 3).different, 1u);
}

TEST_F(BitReportTest, RefusesRecordsThatDisagreeInTheNumberOfRanks) {
  add({.rank = 0, .ranks = 2}, operations(3));
  add({.rank = 1, .ranks = 3}, operations(3));
  const auto runs = group_into_runs({files_});
  ASSERT_FALSE(runs);
  EXPECT_EQ(runs.error().text, "session1-rank1: the session has 3 ranks, but 2 in session1-rank0");
}

}  // namespace
}  // namespace sluice::cli::test
