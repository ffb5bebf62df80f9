#include "gpu_client/engine/join/lane_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace sluice::engine {
namespace {

class LaneSettingsTest : public ::testing::Test {
 protected:
  LaneSettingsTest() { unset(); }
  ~LaneSettingsTest() override { unset(); }
  static void unset() {
    for (const char* const name :
         {"SLUICE_TRANSPORT", "SLUICE_IB_HCA", "SLUICE_IB_GID_INDEX", "SLUICE_IB_TC"})
      ::unsetenv(name);
  }
};

TEST_F(LaneSettingsTest, TransportIsOneOfThreeValues) {
  ::setenv("SLUICE_TRANSPORT", "tcp", 1);
  const auto tcp = read_lane_settings();
  ASSERT_TRUE(tcp);
  EXPECT_FALSE(tcp->rdma);
  EXPECT_EQ(tcp->rdma_error, "") << "TCP was selected";
  ::setenv("SLUICE_TRANSPORT", "quic", 1);
  const auto wrong = read_lane_settings();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text,
            "variable SLUICE_TRANSPORT: unknown transport \"quic\"; expected auto, tcp or rdma");
}

TEST_F(LaneSettingsTest, DeviceVariables) {
  ::setenv("SLUICE_TRANSPORT", "tcp", 1);
  const auto none = read_lane_settings();
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->choice.allows);
  EXPECT_EQ(none->choice.gid_index, -1);
  EXPECT_EQ(none->choice.traffic_class, 0);
  ::setenv("SLUICE_IB_HCA", "mlx5_0:1", 1);
  ::setenv("SLUICE_IB_GID_INDEX", "3", 1);
  ::setenv("SLUICE_IB_TC", "106", 1);
  const auto all = read_lane_settings();
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->choice.allows("mlx5_0", 1));
  EXPECT_FALSE(all->choice.allows("mlx5_0", 2));
  EXPECT_EQ(all->choice.gid_index, 3);
  EXPECT_EQ(all->choice.traffic_class, 106);
  ::setenv("SLUICE_IB_GID_INDEX", "-1", 1);
  EXPECT_EQ(read_lane_settings()->choice.gid_index, -1);
  for (const char* const wrong : {"-2", "256", "3x", "one"}) {
    ::setenv("SLUICE_IB_GID_INDEX", wrong, 1);
    const auto refused = read_lane_settings();
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().text, "variable SLUICE_IB_GID_INDEX: expected an integer in -1..255, found \"" +
                                        std::string(wrong) + "\"");
  }
  ::setenv("SLUICE_IB_GID_INDEX", "", 1);
  ::setenv("SLUICE_IB_TC", "-1", 1);
  const auto refused = read_lane_settings();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "variable SLUICE_IB_TC: expected an integer in 0..255, found \"-1\"");
}

TEST_F(LaneSettingsTest, WithoutADeviceAutoSelectsTcpAndRdmaFails) {
  const auto unset = read_lane_settings();
  ASSERT_TRUE(unset);
  if (unset->rdma) GTEST_SKIP() << "left out: this machine has an RDMA device";
  EXPECT_NE(unset->rdma_error, "");
  ::setenv("SLUICE_TRANSPORT", "rdma", 1);
  const auto required = read_lane_settings();
  ASSERT_FALSE(required);
  EXPECT_EQ(required.error().code, Errc::kUnsupported);
  EXPECT_EQ(required.error().text, "variable SLUICE_TRANSPORT is rdma: " + unset->rdma_error);
}

}  // namespace
}  // namespace sluice::engine
