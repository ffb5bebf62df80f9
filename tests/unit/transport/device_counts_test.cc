#include "transport/rdma/device_counts.h"

#include <gtest/gtest.h>

namespace sluice::transport::rdma {
namespace {

DeviceReport report_of(const DeviceCounts& counts) {
  DeviceReport report;
  counts.fill(report);
  return report;
}

TEST(DeviceCounts, PairsAndRegistrations) {
  DeviceCounts counts;
  counts.pair_made();
  counts.pair_made();
  counts.pair_unmade();
  counts.pair_failed();
  counts.registered(1000);
  counts.registered(500);
  counts.deregistered(1000);
  counts.registration_failed();
  const auto r = report_of(counts);
  EXPECT_EQ(r.pairs_made, 2U);
  EXPECT_EQ(r.pairs_open, 1U);
  EXPECT_EQ(r.pairs_failed, 1U);
  EXPECT_EQ(r.registrations, 2U);
  EXPECT_EQ(r.registrations_failed, 1U);
  EXPECT_EQ(r.registered_bytes, 500U);
}

TEST(DeviceCounts, CompletionErrorsByTheirNames) {
  DeviceCounts counts;
  EXPECT_TRUE(report_of(counts).completion_errors.empty());
  counts.completion_failed(IBV_WC_RETRY_EXC_ERR);
  counts.completion_failed(IBV_WC_RETRY_EXC_ERR);
  counts.completion_failed(IBV_WC_RNR_RETRY_EXC_ERR);
  counts.completion_failed(IBV_WC_REM_ACCESS_ERR);
  counts.completion_failed(static_cast<ibv_wc_status>(31));  // of a library to come
  const std::vector<std::pair<std::string_view, uint64_t>> wanted{
      {"REM_ACCESS_ERR", 1}, {"RETRY_EXC_ERR", 2}, {"RNR_RETRY_EXC_ERR", 1}, {"others", 1}};
  EXPECT_EQ(report_of(counts).completion_errors, wanted);
  EXPECT_EQ(report_of(counts).retries_exhausted, 3U);
}

TEST(DeviceCounts, ATallyIsAddedOnceMuchHasComeTogetherOrNothingGoes) {
  DeviceCounts counts;
  {
    Tally one(counts.bytes_in()), other(counts.bytes_in());
    one.add(kMiB - 1);
    EXPECT_EQ(report_of(counts).bytes_in, 0U);
    one.add(1);
    EXPECT_EQ(report_of(counts).bytes_in, kMiB);
    one.add(10);
    one.settle();
    one.settle();
    EXPECT_EQ(report_of(counts).bytes_in, kMiB + 10);
    other.add(5);
  }
  EXPECT_EQ(report_of(counts).bytes_in, kMiB + 15);
  EXPECT_EQ(report_of(counts).bytes_out, 0U);
}

}  // namespace
}  // namespace sluice::transport::rdma
