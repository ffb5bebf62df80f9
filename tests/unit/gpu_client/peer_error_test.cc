#include "gpu_client/engine/base/peer_error.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(PeerError, KeepsSharedCodes) {
  for (const Errc code :
       {Errc::kTimeout, Errc::kBadSlot, Errc::kMismatch, Errc::kDraining, Errc::kPeerLost, Errc::kShutdown}) {
    EXPECT_EQ(code_from_peer(code), code);
    EXPECT_EQ(code_for_peer(code), code);
  }
}

TEST(PeerError, ReplacesReceivedCodesWithoutMeaning) {
  for (const int code : {0, 1, 5, 80, 81, 82, 83, 84, 85, 60000})
    EXPECT_EQ(code_from_peer(static_cast<Errc>(code)), Errc::kAborted) << code;
}

TEST(PeerError, ReplacesLocalCodesToSend) {
  for (int code = 80; code <= 84; ++code)
    EXPECT_EQ(code_for_peer(static_cast<Errc>(code)), Errc::kAborted) << code;
}

}  // namespace
}  // namespace sluice::engine
