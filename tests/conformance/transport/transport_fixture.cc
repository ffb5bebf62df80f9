#include "tests/conformance/transport/transport_fixture.h"

#include <cctype>
#include <thread>

#include "core/clock.h"

namespace sluice::transport::test {

void PairFixture::build(TransportTestBed test_bed, const EndpointOptions& options) {
  test_bed_ = std::move(test_bed);
  connect(left, right, options);
  connect(healthy_left, healthy_right, {});
}

void PairFixture::connect(RecordingHandler& one, RecordingHandler& other, const EndpointOptions& options) {
  std::tie(one.endpoint, other.endpoint) = test_bed_.connect(one, other, options);
}

void PairFixture::reconnect(const EndpointOptions& options) {
  left = RecordingHandler();
  right = RecordingHandler();
  connect(left, right, options);
}

void PairFixture::expect_both_closed(Errc left_reason, Errc right_reason) {
  EXPECT_TRUE(poll_until([this] { return both_closed(); }));
  EXPECT_EQ(left.closed, left_reason);
  EXPECT_EQ(right.closed, right_reason);
}

bool PairFixture::poll_until(const std::function<bool()>& done) {
  const Nanos deadline = monotonic_now() + kTestTimeout;
  while (!done()) {
    const Nanos now = monotonic_now();
    if (now > deadline) return false;
    unsigned work = 0;
    if (test_bed_.a) work += test_bed_.a->poll(now, kBudget);
    if (test_bed_.b) work += test_bed_.b->poll(now, kBudget);
    if (work == 0) std::this_thread::yield();
  }
  return true;
}

void PairFixture::TearDown() {
  if (!test_bed_.a || !test_bed_.b || healthy_left.endpoint == nullptr) return;
  const size_t before_left = healthy_left.received.size(), before_right = healthy_right.received.size();
  ASSERT_NE(healthy_right.endpoint, nullptr) << "the healthy pair was closed";
  EXPECT_TRUE(healthy_left.put_pattern(5000, 1000).ok());
  EXPECT_TRUE(healthy_right.put_pattern(5000, 1001).ok());
  EXPECT_TRUE(poll_until([&] {
    return healthy_left.received.size() > before_left && healthy_right.received.size() > before_right;
  })) << "the healthy pair no longer carries frames";
  EXPECT_FALSE(healthy_left.closed || healthy_right.closed);
}

void TransportFixture::SetUp() {
  TransportTestBed test_bed = make_test_bed(GetParam());
  if (!test_bed.skip_reason.empty()) GTEST_SKIP() << test_bed.skip_reason;
  build(std::move(test_bed));
}

void TransportFixture::rebuild(const EndpointOptions& options) {
  left.close(Errc::kClosed);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  reconnect(options);
}

std::string test_bed_label(const testing::TestParamInfo<std::string>& info) {
  std::string label;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) label += c;
    if (c == '(') label += '_';
  }
  return label;
}

}  // namespace sluice::transport::test
