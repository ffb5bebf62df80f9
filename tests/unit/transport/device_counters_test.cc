#include "transport/rdma/device_counters.h"

#include <gtest/gtest.h>

namespace sluice::transport::rdma {
namespace {

DeviceReport report_of(const DeviceCounters& counters) {
  DeviceReport report;
  counters.fill(report);
  return report;
}

TEST(DeviceCounters, CountsPairsAndRegistrations) {
  DeviceCounters counters;
  counters.add_pair();
  counters.add_pair();
  counters.remove_pair();
  counters.add_pair_failure();
  counters.add_registration(1000);
  counters.add_registration(500);
  counters.remove_registration(1000);
  counters.add_registration_failure();
  const auto r = report_of(counters);
  EXPECT_EQ(r.pairs_made, 2U);
  EXPECT_EQ(r.pairs_open, 1U);
  EXPECT_EQ(r.pairs_failed, 1U);
  EXPECT_EQ(r.registrations, 2U);
  EXPECT_EQ(r.registrations_failed, 1U);
  EXPECT_EQ(r.registered_bytes, 500U);
}

TEST(DeviceCounters, ReportsCompletionErrorsByName) {
  DeviceCounters counters;
  EXPECT_TRUE(report_of(counters).completion_errors.empty());
  counters.add_completion_error(IBV_WC_RETRY_EXC_ERR);
  counters.add_completion_error(IBV_WC_RETRY_EXC_ERR);
  counters.add_completion_error(IBV_WC_RNR_RETRY_EXC_ERR);
  counters.add_completion_error(IBV_WC_REM_ACCESS_ERR);
  counters.add_completion_error(static_cast<ibv_wc_status>(31));  // a status of a newer libibverbs
  const std::vector<std::pair<std::string_view, uint64_t>> expected{
      {"REM_ACCESS_ERR", 1}, {"RETRY_EXC_ERR", 2}, {"RNR_RETRY_EXC_ERR", 1}, {"others", 1}};
  EXPECT_EQ(report_of(counters).completion_errors, expected);
  EXPECT_EQ(report_of(counters).retries_exhausted, 3U);
}

TEST(BatchedCounter, AddsToTheTotalPerMebibyteAndOnFlush) {
  DeviceCounters counters;
  {
    BatchedCounter one(counters.bytes_in()), other(counters.bytes_in());
    one.add(kMiB - 1);
    EXPECT_EQ(report_of(counters).bytes_in, 0U);
    one.add(1);
    EXPECT_EQ(report_of(counters).bytes_in, kMiB);
    one.add(10);
    one.flush();
    one.flush();
    EXPECT_EQ(report_of(counters).bytes_in, kMiB + 10);
    other.add(5);
  }
  EXPECT_EQ(report_of(counters).bytes_in, kMiB + 15);
  EXPECT_EQ(report_of(counters).bytes_out, 0U);
}

}  // namespace
}  // namespace sluice::transport::rdma
