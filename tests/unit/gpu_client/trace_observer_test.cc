#include "gpu_client/engine/trace/trace_observer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/clock.h"

namespace sluice::engine::test {
namespace {

constexpr SessionId kSession{{0x3f, 0x2a, 0x0b, 0x1c}};

class TraceFixture : public ::testing::Test {
 protected:
  TraceFixture() {
    char pattern[] = "/tmp/sluice-trace-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~TraceFixture() override {
    ::unsetenv("SLUICE_TRACE");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path() const { return folder_ + "/trace-%s.json"; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(folder_ + "/trace-3f2a0b1c.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::shared_ptr<TraceObserver> create() const {
    ::setenv("SLUICE_TRACE", path().c_str(), 1);
    return TraceObserver::create({.session = kSession, .rank = 2, .ranks = 4, .job = "a \"job\""});
  }
  // The events of the file with this name.
  [[nodiscard]] std::vector<nlohmann::json> events(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : nlohmann::json::parse(text())) {
      if (event["name"] == name) found.push_back(event);
    }
    return found;
  }
  std::string folder_;
};

TEST_F(TraceFixture, IsAbsentWithoutTheVariable) {
  EXPECT_EQ(TraceObserver::create({.session = kSession}), nullptr);
  ::setenv("SLUICE_TRACE", "", 1);
  EXPECT_EQ(TraceObserver::create({.session = kSession}), nullptr);
}

TEST_F(TraceFixture, IsValidJsonWithoutAnyRecord) {
  ASSERT_NE(create(), nullptr);
  const auto header = events("sluice_trace");
  ASSERT_EQ(header.size(), 1u);
  EXPECT_EQ(header[0]["args"]["job"], "a \"job\"");
  EXPECT_EQ(header[0]["args"]["ranks"], 4);
  EXPECT_EQ(events("end of trace").size(), 1u);
}

TEST_F(TraceFixture, OneSessionAtATimeWritesToAFile) {
  auto first = create();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(create(), nullptr);
  first.reset();
  EXPECT_EQ(events("end of trace").size(), 1u) << "the second session changed the file";
  EXPECT_NE(create(), nullptr);
}

TEST_F(TraceFixture, RefusesAPipeWithoutBlocking) {
  ASSERT_EQ(mkfifo((folder_ + "/trace-3f2a0b1c.json").c_str(), 0600), 0);
  EXPECT_EQ(create(), nullptr);
}

TEST_F(TraceFixture, OperationsAtTheSameTimeHaveTheirOwnTracks) {
  auto observer = create();
  for (const auto& [issued, done] : {std::pair(100, 200), std::pair(150, 250), std::pair(200, 300)})
    observer->on_operation_ended({.bytes = 8, .issued = Nanos{issued} * 1000, .done = Nanos{done} * 1000},
                                 {});
  observer.reset();
  const auto operations = events("allreduce");
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[0]["tid"], 1);
  EXPECT_EQ(operations[1]["tid"], 2);
  EXPECT_EQ(operations[2]["tid"], 1) << "begins when the first one ends";
  EXPECT_EQ(operations[0]["ts"], 100.0);
  EXPECT_EQ(operations[0]["dur"], 100.0);
}

TEST_F(TraceFixture, OperationsHaveTheNamesOfTheirKinds) {
  auto observer = create();
  observer->on_operation_ended({.bytes = 8, .kind = wire::Kind::kReduceScatter, .issued = 1000, .done = 2000},
                               {});
  observer->on_operation_ended({.bytes = 8, .kind = wire::Kind::kBroadcast, .issued = 3000, .done = 4000},
                               {});
  observer.reset();
  EXPECT_EQ(events("reduce-scatter").size(), 1u);
  EXPECT_EQ(events("broadcast").size(), 1u);
}

TEST_F(TraceFixture, SamplesChunksAndCountsAllOfThem) {
  auto observer = create();
  observer->on_reducer_added("reducer 0");
  observer->on_reducer_added("reducer 1");
  for (Nanos at = kSecond; at < kSecond + 10 * kMillisecond; at += 100 * kMicrosecond) {
    for (const uint32_t reducer : {0U, 1U}) {
      observer->on_chunk_ended({.bytes = 10,
                                .reducer = reducer,
                                .put = at,
                                .result = at + 250 * kMicrosecond,
                                .parts = {.on_wire = 250 * kMicrosecond}});
    }
  }
  observer->on_chunk_ended({.reducer = 2});  // never added
  observer.reset();
  EXPECT_EQ(events("chunk").size(), 20u) << "one of each reducer in a millisecond";
  const auto totals = events("total");
  ASSERT_GE(totals.size(), 2u);
  EXPECT_EQ(totals.back()["tid"], 1001);
  EXPECT_EQ(totals.back()["args"]["chunks"], 100);
  EXPECT_EQ(totals.back()["args"]["bytes"], 1000);
  EXPECT_EQ(totals.back()["args"]["on_wire_us"], 25'000.0);
}

TEST_F(TraceFixture, WritesStallsAndViewChanges) {
  auto observer = create();
  StallRecord stall{.begin = kSecond, .end = 2 * kSecond};
  std::ranges::copy(std::string_view("reducer \xff: reset"), stall.reason.begin());
  observer->on_stall_ended(stall);
  observer->on_view_changed({.at = 2 * kSecond, .version = 4, .reducers = 1});
  observer.reset();
  ASSERT_EQ(events("stall").size(), 1u);
  EXPECT_EQ(events("stall")[0]["dur"], 1e6);
  EXPECT_EQ(events("stall")[0]["args"]["reason"], "reducer \u00ff: reset");
  ASSERT_EQ(events("view change").size(), 1u);
  EXPECT_EQ(events("view change")[0]["args"]["version"], 4);
}

TEST_F(TraceFixture, OperationsNameTheCollectiveThatRuns) {
  auto observer = create();
  observer->on_operation_ended({.bytes = 8, .issued = 1, .done = 2}, {});
  observer->on_collective_running(7);
  observer->on_operation_ended({.bytes = 8, .issued = 3, .done = 4}, {});
  observer->on_collective_running(0);
  observer->on_operation_ended({.bytes = 8, .issued = 5, .done = 6}, {});
  observer.reset();
  const auto operations = events("allreduce");
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_FALSE(operations[0]["args"].contains("collective"));
  EXPECT_EQ(operations[1]["args"]["collective"], 7);
  EXPECT_FALSE(operations[2]["args"].contains("collective"));
}

TEST_F(TraceFixture, WritesCollectivesOfOtherNamesToo) {
  auto observer = create();
  CollectiveRecord collective{
      .number = 7, .launched = kSecond, .kernel_begin = 2 * kSecond, .kernel_end = 3 * kSecond};
  std::ranges::copy(std::string_view("AllReduce"), collective.function.begin());
  std::ranges::copy(std::string_view("a \"name\""), collective.communicator.begin());
  observer->on_collective_ended(collective);
  collective.function = {'"'};  // not a name
  observer->on_collective_ended(collective);
  observer.reset();
  ASSERT_EQ(events("AllReduce").size(), 1u);
  const auto event = events("AllReduce")[0];
  EXPECT_EQ(event["ts"], 2e6);
  EXPECT_EQ(event["dur"], 1e6);
  EXPECT_EQ(event["args"]["collective"], 7);
  EXPECT_EQ(event["args"]["communicator"], "a \"name\"");
  EXPECT_EQ(event["args"]["launch_to_kernel_us"], 1e6);
  EXPECT_EQ(event["args"]["launch_to_network_us"], 0.0) << "was not reported";
  ASSERT_EQ(events("collective").size(), 1u);
  EXPECT_NE(events("collective")[0]["tid"], event["tid"]) << "both are at the same time";
}

// The loop is faster than the writer can be.
TEST_F(TraceFixture, CountsTheRecordsThatDoNotFit) {
  constexpr uint64_t kPushed = 8 * TraceObserver::kRecords;
  auto observer = create();
  for (uint64_t i = 0; i < kPushed; ++i)
    observer->on_operation_ended({.bytes = 8, .issued = Nanos(i), .done = Nanos(i)}, {});
  observer.reset();
  uint64_t lost = 0;
  for (const auto& event : events("records lost")) lost += event["args"]["records"].get<uint64_t>();
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(events("allreduce").size() + lost, kPushed);
}

}  // namespace
}  // namespace sluice::engine::test
