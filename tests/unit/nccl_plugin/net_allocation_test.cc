// Counts the heap allocations of the network in steady state.
#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/unit/nccl_plugin/net_test_bed.h"

namespace sluice::nccl::test {
namespace {

TEST(NetAllocations, NoneInSteadyState) {
  NetPair pair;
  constexpr size_t kBytes = 3 * kMiB;
  const auto out = pattern(kBytes, 1);
  std::array<std::vector<std::byte>, 8> in;
  for (auto& buffer : in) buffer.resize(kBytes);
  const auto round = [&](size_t bytes) {
    std::array<Outcome, 8> sent;
    std::array<Outcome, 8> received;
    for (size_t i = 0; i < in.size(); ++i) {
      const Status sending = net::isend(*pair.send, out.data(), bytes, 0, &sent[i].request);
      const Status receiving = net::irecv(*pair.recv, in[i].data(), bytes, 0, &received[i].request);
      if (!sending.ok() || !receiving.ok() || !sent[i].request || !received[i].request) return false;
    }
    return poll_until_ended(sent, received) && std::ranges::all_of(sent, &Outcome::done) &&
           std::ranges::all_of(received, &Outcome::done);
  };
  ASSERT_TRUE(round(kBytes));
  const uint64_t before = sluice::test::allocations();
  for (const size_t bytes : {size_t{0}, size_t{1}, 64 * kKiB, 700'001ul, kBytes}) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(round(bytes));
  }
  EXPECT_EQ(sluice::test::allocations() - before, 0u);
}

}  // namespace
}  // namespace sluice::nccl::test
