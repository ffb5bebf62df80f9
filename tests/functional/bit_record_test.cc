// Bit records of real sessions (SLUICE_BITS): the same for any pool, and different for any bit.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "cli/bits/bit_comparison.h"
#include "cli/bits/bit_report.h"
#include "tests/functional/colocation_test_bed.h"

namespace sluice::test {
namespace {

constexpr uint32_t kRanks = 4;

// Class BitFlipper flips a bit of this rank's results behind the last chunk and before the bit record, where
// damaged memory would flip it.
class BitFlipper final : public engine::OperationObserver {
 public:
  struct Flip {
    Rank rank = 0;
    uint64_t bit = 0;  // modulo the result's bits
  };
  // By the operations' numbers.
  BitFlipper(Rank rank, const std::vector<std::optional<Flip>>& flips) : rank_(rank), flips_(flips) {}

  void on_operation_ended(const engine::OperationRecord& operation,
                          std::span<const std::byte> result) noexcept override {
    if (operation.op_id >= flips_.size()) return;
    const std::optional<Flip>& flip = flips_[operation.op_id];
    if (!flip || flip->rank != rank_) return;
    const uint64_t bit = flip->bit % (8 * result.size());
    const_cast<std::byte*>(result.data())[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  }

 private:
  const Rank rank_;
  const std::vector<std::optional<Flip>>& flips_;
};

class BitRecordTest : public ColocationTestBed {
 protected:
  BitRecordTest() {
    mode = engine::ColocationMode::kOff;
    folder_ = std::filesystem::temp_directory_path() / ("sluice-bit-record-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
  }
  ~BitRecordTest() override {
    ::unsetenv("SLUICE_BITS");
    std::filesystem::remove_all(folder_);
  }

  // Runs a session with a bit record and returns the files' contents.
  cli::BitRecordGroup record(const Body& body, const Adjust& adjust = nullptr) {
    ++tag;
    const std::string pattern = folder_ / (std::to_string(++runs_) + "-%r.bits");
    ::setenv("SLUICE_BITS", pattern.c_str(), 1);
    for (const std::string& error : run(kRanks, adjust, body)) EXPECT_EQ(error, "");
    ::unsetenv("SLUICE_BITS");
    cli::BitRecordGroup out;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto one =
          cli::read_bit_record(folder_ / (std::to_string(runs_) + "-" + std::to_string(rank) + ".bits"));
      EXPECT_TRUE(one) << one.error().text;
      if (one) out.records.push_back(std::move(*one));
    }
    return out;
  }

  static std::vector<cli::RecordedRun> runs_of(std::vector<cli::BitRecordGroup> groups) {
    auto runs = cli::group_into_runs(std::move(groups));
    EXPECT_TRUE(runs) << runs.error().text;
    return runs ? std::move(*runs) : std::vector<cli::RecordedRun>();
  }
  static void expect_equal(const cli::BitRecordGroup& a, const cli::BitRecordGroup& b) {
    const cli::BitReport report = cli::report_bits(runs_of({a, b}), 10);
    EXPECT_EQ(report.different, 0u) << report.text;
    ASSERT_EQ(a.records.size(), b.records.size());
    for (size_t i = 0; i < a.records.size(); ++i) {
      ASSERT_EQ(a.records[i].operations.size(), b.records[i].operations.size());
      EXPECT_EQ(a.records[i].operations.back().running, b.records[i].operations.back().running);
    }
  }

  // Every collective, in sizes of one chunk and of many. `changed` adds one bit to what rank 1 contributes to
  // operation `changed`.
  static void run_all_kinds(uint32_t rank, engine::Session& session, uint32_t changed = ~0U) {
    uint32_t number = 0;
    for (const size_t count : {size_t{12}, size_t{3000}, size_t{240'000}}) {
      for (const wire::DType dtype : {wire::DType::kF32, wire::DType::kBf16, wire::DType::kI32}) {
        using enum wire::Kind;
        for (const wire::Kind kind : {kAllreduce, kReduceScatter, kAllGather, kReduce, kBroadcast}) {
          const size_t element = wire::size_of(dtype);
          std::vector<float> values = ColocationTestBed::values(rank + 100 * number, count);
          std::vector<std::byte> send(element * count);
          std::memcpy(send.data(), values.data(), send.size());
          // Of an integer, so that rounding cannot hide it, and in every rank's part.
          if (number == changed && rank == 1) send[send.size() / 8] ^= std::byte{1};
          std::vector<std::byte> recv(element * count);
          run_operation(session, {.send = send.data(),
                                  .recv = recv.data(),
                                  .count = count,
                                  .dtype = dtype,
                                  .op = wire::Op::kSum,
                                  .kind = kind,
                                  .root = 1});
          ++number;
        }
      }
    }
  }
  static constexpr uint32_t kOperationsOfAllKinds = 45;

  std::filesystem::path folder_;
  int runs_ = 0;
};

TEST_F(BitRecordTest, IsTheSameForAnyPool) {
  const auto all_kinds = [](uint32_t rank, engine::Session& session) { run_all_kinds(rank, session); };
  start_reducers(1);
  const cli::BitRecordGroup one = record(all_kinds);
  ASSERT_EQ(one.records.size(), kRanks);
  EXPECT_EQ(one.records[0].operations.size(), kOperationsOfAllKinds);
  for (size_t count = 2; count <= 3; ++count) {
    SCOPED_TRACE(count);
    start_reducers(1);
    expect_equal(one, record(all_kinds));
  }
  mode = engine::ColocationMode::kAlways;
  {
    SCOPED_TRACE("co-located reducers besides the pool");
    expect_equal(one, record(all_kinds));
  }
  pool.clear();
  {
    SCOPED_TRACE("co-located reducers alone");
    expect_equal(one, record(all_kinds));
  }
}

TEST_F(BitRecordTest, IsTheSameForOtherChunksAndWhenResultsAreReceivedInPlace) {
  const auto all_kinds = [](uint32_t rank, engine::Session& session) { run_all_kinds(rank, session); };
  start_reducers(2);
  const cli::BitRecordGroup usual = record(all_kinds);
  expect_equal(usual, record(all_kinds, [](uint32_t, engine::SessionOptions& o) {
                 o.join.slot_bytes = 16 * kKiB;
                 o.join.lanes = 1;
                 o.own_thread = false;
                 o.keep_results = false;
                 o.join.identity.fault_tolerant = false;
               }));
}

TEST_F(BitRecordTest, IsTheSameWhenAReducerIsLost) {
  start_reducers(2);
  const auto body = [&](bool is_lossy) {
    return [&, is_lossy](uint32_t rank, engine::Session& session) {
      for (int i = 0; i < 30; ++i) {
        std::vector<float> data = values(rank + static_cast<uint32_t>(i), 100'000);
        sum(session, data);
        if (is_lossy && rank == 0 && i == 10) reducers[1].reset();
      }
      EXPECT_EQ(session.stats().recovery.view_changes > 0, is_lossy);
    };
  };
  const cli::BitRecordGroup usual = record(body(false));
  expect_equal(usual, record(body(true)));
}

TEST_F(BitRecordTest, NamesTheFirstOperationToWhichARankContributedAnotherBit) {
  start_reducers(2);
  const cli::BitRecordGroup expected =
      record([](uint32_t rank, engine::Session& session) { run_all_kinds(rank, session); });
  uint32_t number = 0;
  for (uint32_t changed = 10; changed < kOperationsOfAllKinds; ++changed) {
    if (changed / 5 % 3 != 2) continue;  // not integers
    // Of reduce-scatter and reduce, one rank receives the bit.
    const std::vector<uint32_t> ranks = changed % 5 == 1   ? std::vector<uint32_t>{0}
                                        : changed % 5 == 3 ? std::vector<uint32_t>{1}
                                                           : std::vector<uint32_t>();
    ++number;
    const cli::BitRecordGroup found =
        record([&](uint32_t rank, engine::Session& session) { run_all_kinds(rank, session, changed); });
    const auto runs = runs_of({expected, found});
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_EQ(cli::compare_ranks(runs[1].sessions[0], 10).different, 0u) << "all ranks have the same results";
    const cli::SessionComparison c = cli::compare_sessions(runs[0].sessions[0], runs[1].sessions[0]);
    ASSERT_TRUE(c.first) << changed;
    EXPECT_EQ(c.first->number, changed);
    EXPECT_EQ(c.different, 1u);
    EXPECT_EQ(c.first->ranks, ranks) << changed;
  }
  EXPECT_EQ(number, 15u);
}

// Operations of different sizes in flight, so that they end out of order.
TEST_F(BitRecordTest, NamesTheRankOfEachOf1000FlippedBits) {
  constexpr size_t kOperations = 1000;
  constexpr size_t kInFlight = 16;
  std::mt19937 random(7);
  std::vector<std::optional<BitFlipper::Flip>> flips(kOperations + 2 * kInFlight);
  for (size_t i = kInFlight; i < kInFlight + kOperations; ++i)
    flips[i] = {.rank = static_cast<Rank>(random() % kRanks), .bit = random()};
  constexpr size_t kMost = 9000;  // elements: some operations have one chunk, some have several
  const std::vector<float> expected = sum_as_tree(kRanks, kMost);
  start_reducers(2);
  const cli::BitRecordGroup group = record(
      [&](uint32_t rank, engine::Session& session) {
        std::array<std::vector<float>, kInFlight> data;
        for (size_t i = 0; i < flips.size(); i += kInFlight) {
          std::array<uint64_t, kInFlight> handles{};
          for (size_t j = 0; j < kInFlight && i + j < flips.size(); ++j) {
            data[j] = values(rank, 1 + (i + j) * 7919 % kMost);
            auto* const bytes = reinterpret_cast<std::byte*>(data[j].data());
            ASSERT_EQ(
                session.start({.send = bytes, .recv = bytes, .count = data[j].size()}, handles[j]).code(),
                Errc::kOk);
          }
          for (size_t j = 0; j < kInFlight && i + j < flips.size(); ++j) {
            ASSERT_EQ(session.wait(handles[j], monotonic_now() + 20 * kSecond).code(), Errc::kOk);
            const std::optional<BitFlipper::Flip>& flip = flips[i + j];
            const bool is_wrong =
                std::memcmp(data[j].data(), expected.data(), data[j].size() * sizeof(float)) != 0;
            ASSERT_EQ(is_wrong, flip && flip->rank == rank) << "the caller gets the flipped bit";
          }
        }
      },
      [&](uint32_t rank, engine::SessionOptions& o) {
        o.observers.push_back(std::make_shared<BitFlipper>(rank, flips));
      });
  const auto runs = runs_of({group});
  ASSERT_EQ(runs.size(), 1u);
  const cli::RankComparison c = cli::compare_ranks(runs[0].sessions[0], flips.size());
  EXPECT_EQ(c.compared, flips.size());
  ASSERT_EQ(c.differences.size(), kOperations);
  size_t named = 0;
  for (const cli::OperationDifference& d : c.differences) {
    ASSERT_TRUE(flips[d.number]) << "operation " << d.number << " has no flipped bit";
    named += d.has_majority() && d.groups.size() == 2 &&
             d.groups[1].ranks == std::vector<uint32_t>{flips[d.number]->rank};
  }
  EXPECT_EQ(named, kOperations);
}

TEST_F(BitRecordTest, EndsBeforeTheOperationThatFails) {
  start_reducers(1);
  ::setenv("SLUICE_BITS", (folder_ / "%r.bits").c_str(), 1);
  std::atomic<bool> is_waiting{false};
  std::vector<std::thread> threads;
  for (const uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      auto session = engine::Session::create(options(rank, 2));
      ASSERT_TRUE(session) << session.error().text;
      std::vector<float> data = values(rank, 1000);
      sum(**session, data);
      sum(**session, data);
      if (rank == 1) {
        while (!is_waiting) std::this_thread::yield();
        (*session)->abort_for_caller("test");
        return;
      }
      uint64_t handle = 0;
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      ASSERT_TRUE((*session)->start({.send = bytes, .recv = bytes, .count = data.size()}, handle).ok());
      is_waiting = true;
      EXPECT_EQ((*session)->wait(handle, monotonic_now() + 20 * kSecond).code(), Errc::kAborted);
    });
  }
  for (std::thread& t : threads) t.join();
  const auto record = cli::read_bit_record(folder_ / "0.bits");
  ASSERT_TRUE(record) << record.error().text;
  EXPECT_EQ(record->operations.size(), 2u);
  EXPECT_EQ(record->end, "operation 2 failed: aborted");
}

}  // namespace
}  // namespace sluice::test
