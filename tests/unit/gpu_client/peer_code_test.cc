#include "gpu_client/engine/peer_code.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(PeerCode, KeepsReasonsThatMeanTheSameOnBothSides) {
  for (const Errc code :
       {Errc::kTimeout, Errc::kBadSlot, Errc::kMismatch, Errc::kDraining, Errc::kPeerLost, Errc::kShutdown}) {
    EXPECT_EQ(from_peer(code), code);
    EXPECT_EQ(for_peer(code), code);
  }
}

TEST(PeerCode, TakesWhatSaysNothingHereForAnAbort) {
  for (const int code : {0, 1, 5, 80, 81, 82, 83, 84, 85, 60000})
    EXPECT_EQ(from_peer(static_cast<Errc>(code)), Errc::kAborted) << code;
}

TEST(PeerCode, SendsNoLocalNumber) {
  for (int code = 80; code <= 84; ++code)
    EXPECT_EQ(for_peer(static_cast<Errc>(code)), Errc::kAborted) << code;
}

}  // namespace
}  // namespace sluice::engine
