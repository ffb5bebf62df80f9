#include "tests/conformance/transport/fixture.h"

#include <cctype>
#include <thread>

#include "core/clock.h"

namespace sluice::transport::test {

void PairTest::build(Bed bed, const EndpointOptions& options) {
  bed_ = std::move(bed);
  connect(left, right, options);
  connect(healthy_left, healthy_right, {});
}

void PairTest::connect(Recorder& one, Recorder& other, const EndpointOptions& options) {
  std::tie(one.endpoint, other.endpoint) = bed_.connect(one, other, options);
}

bool PairTest::drive_until(const std::function<bool()>& done) {
  const Nanos deadline = monotonic_now() + kPatience;
  while (!done()) {
    const Nanos now = monotonic_now();
    if (now > deadline) return false;
    unsigned work = 0;
    if (bed_.a) work += bed_.a->poll(now, kBudget);
    if (bed_.b) work += bed_.b->poll(now, kBudget);
    if (work == 0) std::this_thread::yield();
  }
  return true;
}

void PairTest::TearDown() {
  if (!bed_.a || !bed_.b || healthy_left.endpoint == nullptr) return;
  const size_t before_left = healthy_left.received.size(), before_right = healthy_right.received.size();
  ASSERT_NE(healthy_right.endpoint, nullptr) << "the healthy pair was closed";
  EXPECT_TRUE(healthy_left.put_pattern(5000, 1000).ok());
  EXPECT_TRUE(healthy_right.put_pattern(5000, 1001).ok());
  EXPECT_TRUE(drive_until([&] {
    return healthy_left.received.size() > before_left && healthy_right.received.size() > before_right;
  })) << "the healthy pair no longer carries frames";
  EXPECT_FALSE(healthy_left.closed || healthy_right.closed);
}

void TransportTest::SetUp() {
  Bed bed = make_bed(GetParam());
  if (!bed.missing.empty()) GTEST_SKIP() << bed.missing;
  build(std::move(bed));
}

void TransportTest::rebuild(const EndpointOptions& options) {
  left.close(Errc::kClosed);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  left = Recorder();
  right = Recorder();
  connect(left, right, options);
}

std::string bed_label(const testing::TestParamInfo<std::string>& info) {
  std::string label;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) label += c;
    if (c == '(') label += '_';
  }
  return label;
}

}  // namespace sluice::transport::test
