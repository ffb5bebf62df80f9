#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/conformance/transport/recording_handler.h"
#include "tests/conformance/transport/transport_test_bed.h"

namespace sluice::transport::test {

// Longer than any step on a loaded machine with a sanitizer; reached only when a test hangs.
inline constexpr Nanos kTestTimeout = 30 * kSecond;
inline constexpr size_t kBudget = kMiB;

// PairFixture has one pair of endpoints under test and a healthy pair in the same contexts. Whatever happens
// to the pair under test, the healthy pair must still carry frames in both directions at the end of the test.
class PairFixture : public testing::Test {
 protected:
  void build(TransportTestBed test_bed, const EndpointOptions& options = {});
  void TearDown() override;

  // Polls both contexts alternately until `done()` is true. False after kTestTimeout.
  bool poll_until(const std::function<bool()>& done);
  void connect(RecordingHandler& one, RecordingHandler& other, const EndpointOptions& options);
  // Replaces the pair under test by a new one.
  void reconnect(const EndpointOptions& options = {});
  // Expects that both ends of the pair under test close with these reasons.
  void expect_both_closed(Errc left_reason, Errc right_reason);
  // True when both ends of the pair under test are closed.
  bool both_closed() const { return left.closed.has_value() && right.closed.has_value(); }

  TransportTestBed test_bed_;

 public:
  RecordingHandler left, right;                  // the pair under test, in contexts a and b
  RecordingHandler healthy_left, healthy_right;  // the healthy pair, in contexts a and b
};

// TransportFixture runs a test with every transport.
class TransportFixture : public PairFixture, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override;
  // Closes the pair under test and replaces it by one with other options.
  void rebuild(const EndpointOptions& options);
};

// Converts a transport name to a test name: "fault(tcp)" to "fault_tcp".
[[nodiscard]] std::string test_bed_label(const testing::TestParamInfo<std::string>& info);

#define SLUICE_OVER_ALL_TRANSPORTS(suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(Over, suite, testing::ValuesIn(sluice::transport::test::test_bed_names()), \
                           test_bed_label)

}  // namespace sluice::transport::test
