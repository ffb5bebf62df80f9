#include "gpu_client/api/status_map.h"

#include <gtest/gtest.h>

#include "wire/dtype.h"

namespace sluice::api {
namespace {

TEST(StatusMap, MapsEveryCodeToAStatus) {
  EXPECT_EQ(to_status(Errc::kOk), SLUICE_OK);
  EXPECT_EQ(to_status(Errc::kExhausted), SLUICE_AGAIN);
  EXPECT_EQ(to_status(Errc::kUnauthenticated), SLUICE_REFUSED);
  EXPECT_EQ(to_status(Errc::kOpTimeout), SLUICE_TIMEOUT);
  EXPECT_EQ(to_status(Errc::kMismatch), SLUICE_MISMATCH);
  EXPECT_EQ(to_status(Errc::kPeerLost), SLUICE_LOST);
  EXPECT_EQ(to_status(Errc::kRankLeft), SLUICE_CLOSED);
  EXPECT_EQ(to_status(Errc::kBadPayloadCrc), SLUICE_PROTOCOL);
  EXPECT_EQ(to_status(static_cast<Errc>(60000)), SLUICE_LOST) << "the code of a newer reducer";
  for (uint16_t code = 1; code < 100; ++code) {
    if (!is_known(static_cast<Errc>(code))) continue;
    EXPECT_NE(to_status(static_cast<Errc>(code)), SLUICE_OK) << code;
  }
}

TEST(StatusMap, EnumValuesEqualThoseOfTheWire) {
  EXPECT_EQ(static_cast<int>(SLUICE_BF16), static_cast<int>(wire::DType::kBf16));
  EXPECT_EQ(static_cast<int>(SLUICE_F8E5M2), static_cast<int>(wire::DType::kF8e5m2));
  EXPECT_EQ(static_cast<int>(SLUICE_AVG), static_cast<int>(wire::Op::kAvg));
}

}  // namespace
}  // namespace sluice::api
