#include "transport/memory/pairing.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

namespace sluice::transport::memory {
namespace {

TEST(MemoryPairing, HandsTheFarEndToWhoeverKnowsTheKeyOnce) {
  auto offer = OfferedPipe::make();
  ASSERT_TRUE(offer);
  PipeKey other = offer->key();
  other[3] ^= 1;
  EXPECT_EQ(take_offered_pipe(other), nullptr) << "another key";
  EXPECT_EQ(take_offered_pipe({}), nullptr);
  EXPECT_EQ(take_offered_pipe(std::span(offer->key()).first(15)), nullptr);
  const auto far_end = take_offered_pipe(offer->key());
  ASSERT_NE(far_end, nullptr);
  EXPECT_EQ(take_offered_pipe(offer->key()), nullptr) << "taken before";
  const auto near_end = offer->take_near_end();
  ASSERT_NE(near_end, nullptr);
  EXPECT_NE(near_end->side(), far_end->side());
}

TEST(MemoryPairing, WithdrawsAnOfferThatNobodyTook) {
  PipeKey key;
  {
    auto offer = OfferedPipe::make();
    ASSERT_TRUE(offer);
    const OfferedPipe moved = std::move(*offer);
    key = moved.key();
  }
  EXPECT_EQ(take_offered_pipe(key), nullptr);
}

TEST(MemoryPairing, BoundsTheOffersThatWait) {
  std::vector<OfferedPipe> offers;
  for (size_t i = 0; i < kMaxOfferedPipes; ++i) offers.push_back(std::move(*OfferedPipe::make()));
  const auto refused = OfferedPipe::make();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kExhausted);
  offers.pop_back();
  EXPECT_TRUE(OfferedPipe::make());
}

}  // namespace
}  // namespace sluice::transport::memory
