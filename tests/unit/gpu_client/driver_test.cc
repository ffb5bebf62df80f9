#include "gpu_client/engine/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gpu_client/fake_reducer.h"

namespace sluice::engine::test {
namespace {

using ::testing::HasSubstr;

// A driver over two fake lanes, turned by hand with a clock of its own.
class DriverTest : public ::testing::Test, protected Driver::Listener {
 protected:
  DriverTest() : table_(2, 16 * 1024), driver_(fate_, *this) {
    Exchange::Options o;
    o.slot_bytes = 16 * 1024;
    o.view_hash = 5;
    o.placement = {0, 1};
    o.links = {{.handle = 7, .slots = 2}, {.handle = 8, .slots = 2}};
    exchange_ = std::move(Exchange::create(std::move(o), table_, driver_).value());
    for (uint32_t i = 0; i < 2; ++i) {
      lanes_.emplace_back(2, 16 * 1024);
      auto [mine, theirs] = network_->connect(*context_, exchange_->link(i), *far_, lanes_.back(),
                                              exchange_->endpoint_options(i));
      exchange_->link(i).bind(*mine);
      lanes_.back().endpoint = theirs;
    }
    driver_.attach(*exchange_, *context_);
    EXPECT_TRUE(exchange_->begin().ok());
  }

  uint32_t submit(Nanos deadline = 0) {
    const auto index = table_.open(
        {.send = in_, .recv = out_, .count = sizeof in_, .dtype = wire::DType::kU8, .deadline = deadline});
    driver_.submit(index.value());
    return *index;
  }
  void turns(int n = 4) {
    for (int i = 0; i < n; ++i) driver_.turn(now_), far_->poll(now_, SIZE_MAX);
  }
  void on_driver_ended(const Ending& e) noexcept override {
    ++endings_;
    ending_ = e;
    fate_.seal(e.code, "by the driver");
  }

  Fate fate_;
  std::unique_ptr<transport::inproc::Network> network_ = transport::inproc::make_network();
  OpTable table_;
  std::deque<FakeLane> lanes_;
  Driver driver_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<transport::Context> context_ = network_->make_context();
  std::unique_ptr<transport::Context> far_ = network_->make_context();
  Nanos now_ = 100 * kSecond;
  std::byte in_[64]{}, out_[64]{};
  int endings_ = 0;
  Ending ending_;
};

TEST_F(DriverTest, TakesSubmissionsAndCountsEnds) {
  const uint32_t op = submit();
  turns();
  EXPECT_EQ(driver_.endings(), 0u);
  lanes_[0].answer();
  turns();
  EXPECT_EQ(table_[op].state.load(), OpState::kEnded);
  EXPECT_EQ(driver_.endings(), 1u);
  EXPECT_EQ(driver_.turn(now_), 0u) << "nothing left to do";
}

TEST_F(DriverTest, EndsTheSessionWhenTheOldestOperationIsOverdue) {
  const uint32_t op = submit(now_ + kSecond);
  turns();
  EXPECT_EQ(driver_.next_deadline(), now_ + kSecond);
  now_ += kSecond - 1;
  turns();
  EXPECT_EQ(endings_, 0);
  now_ += 1;
  turns();
  ASSERT_EQ(endings_, 1);
  EXPECT_EQ(ending_.code, Errc::kOpTimeout);
  EXPECT_THAT(ending_.text.data(),
              HasSubstr("operation 0 (sum of 64 u8) did not end in time: 0 of 1 chunks are back"));
  EXPECT_TRUE(driver_.drained());
  EXPECT_EQ(table_[op].status, Errc::kOpTimeout);
}

TEST_F(DriverTest, WaitsForEverWithoutADeadline) {
  submit();
  turns();
  EXPECT_EQ(driver_.next_deadline(), 0);
  now_ += 24 * 3600 * kSecond;
  turns();
  EXPECT_EQ(endings_, 0);
}

TEST_F(DriverTest, EndsOpenOperationsWhenItsFateIsSealed) {
  const uint32_t op = submit();
  turns();
  fate_.seal(Errc::kReducerLost, "told by the keeper");
  turns();
  EXPECT_TRUE(driver_.drained());
  EXPECT_EQ(table_[op].status, Errc::kReducerLost);
  EXPECT_EQ(endings_, 0) << "whoever sealed it knows";
  // One that was on its way to the driver.
  const uint32_t late = submit();
  turns();
  EXPECT_EQ(table_[late].state.load(), OpState::kEnded);
  EXPECT_EQ(table_[late].status, Errc::kReducerLost);
}

TEST_F(DriverTest, GivesALostLaneTimeToBeExplained) {
  submit();
  turns();
  lanes_[1].endpoint->close(Errc::kReset);
  turns();
  EXPECT_EQ(endings_, 0);
  EXPECT_EQ(driver_.next_deadline(), now_ + Driver::kLinkGrace);
  now_ += Driver::kLinkGrace;
  turns();
  ASSERT_EQ(endings_, 1);
  EXPECT_EQ(ending_.code, Errc::kReducerLost);
  EXPECT_EQ(ending_.link, 1u);
  EXPECT_THAT(ending_.text.data(), HasSubstr("broke"));
}

// Reducers need not be done with a rank at the same moment.
TEST_F(DriverTest, DoesNotMissALaneThatIsClosedInOrderAfterItsLeave) {
  turns();
  lanes_[0].endpoint->close(Errc::kClosed);
  turns();
  driver_.leave();  // the word may come a moment later
  lanes_[1].endpoint->close(Errc::kClosed);
  turns();
  EXPECT_EQ(driver_.next_deadline(), 0) << "nothing is waited for";
  now_ += 2 * Driver::kLinkGrace;
  turns();
  EXPECT_EQ(endings_, 0);
}

TEST_F(DriverTest, MissesALaneThatBreaksOrHasAnOperationOpenAfterItsLeave) {
  driver_.leave();
  submit();
  turns();
  lanes_[1].endpoint->close(Errc::kClosed);
  turns();
  now_ += Driver::kLinkGrace;
  turns();
  ASSERT_EQ(endings_, 1);
  EXPECT_EQ(ending_.code, Errc::kReducerLost);
}

TEST_F(DriverTest, EndsAtOnceOnADamagedFrame) {
  submit();
  turns();
  // The checksum is over other bytes than those that arrive.
  lanes_[0].answer([](wire::FrameHeader& h) { h.flags = wire::kFlagPayloadCrc, h.payload_crc = 12345; });
  turns();
  ASSERT_EQ(endings_, 1);
  EXPECT_EQ(ending_.code, Errc::kBadPayloadCrc);
  EXPECT_THAT(ending_.text.data(), HasSubstr("bad_payload_crc"));
}

}  // namespace
}  // namespace sluice::engine::test
