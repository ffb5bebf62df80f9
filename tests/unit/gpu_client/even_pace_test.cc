#include "gpu_client/store/even_pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sluice::store_client {
namespace {

constexpr uint64_t kLead = 10;

TEST(EvenPace, ATransferWaitsForTheSlowestThatHasBegun) {
  EvenPace pace(3, kLead);
  pace.wait(0, 1000);  // alone, it waits for none
  pace.wait(1, 1000 - kLead);
  std::atomic<int> allowed{0};
  std::thread fast([&] {
    pace.wait(0, 1001);
    allowed = 1;
    pace.wait(0, 2000);
    allowed = 2;
  });
  EXPECT_EQ(allowed, 0);
  pace.wait(1, 1001 - kLead);
  while (allowed != 1) std::this_thread::yield();
  pace.end(1);  // also if it has failed
  fast.join();
  EXPECT_EQ(allowed, 2);
}

}  // namespace
}  // namespace sluice::store_client
