// One pair of endpoints under test, one healthy pair beside it in the same contexts. Whatever happens to the
// first, the second must still carry frames both ways when the test is over.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/conformance/transport/bed.h"
#include "tests/conformance/transport/recorder.h"

namespace sluice::transport::test {

// Longer than any step takes on a loaded machine under a sanitizer; reached only when something hangs.
inline constexpr Nanos kPatience = 30 * kSecond;
inline constexpr size_t kBudget = kMiB;

class PairTest : public testing::Test {
 protected:
  void build(Bed bed, const EndpointOptions& options = {});
  void TearDown() override;

  // Polls both contexts by turns until `done()` holds. False after kPatience.
  bool drive_until(const std::function<bool()>& done);
  void connect(Recorder& one, Recorder& other, const EndpointOptions& options);
  // Both ends of the pair under test are closed, and everything was given back.
  bool over() const { return left.closed.has_value() && right.closed.has_value(); }

  Bed bed_;

 public:
  Recorder left, right;                  // in context a and b
  Recorder healthy_left, healthy_right;  // the same, untouched by the tests
};

// Over every transport.
class TransportTest : public PairTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override;
  // Another pair under test, with other options.
  void rebuild(const EndpointOptions& options);
};

// The suffix of a test's name: "fault(tcp)" -> "fault_tcp".
[[nodiscard]] std::string bed_label(const testing::TestParamInfo<std::string>& info);

#define SLUICE_OVER_ALL_TRANSPORTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Over, suite, testing::ValuesIn(sluice::transport::test::bed_names()), bed_label)

}  // namespace sluice::transport::test
