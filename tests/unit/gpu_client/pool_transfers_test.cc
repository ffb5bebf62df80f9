#include "gpu_client/store/pool_transfers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::store_client {
namespace {

const std::vector<config::Endpoint> kReducers{{.host = "10.0.0.1"}, {.host = "10.0.0.2"}};

engine::Identity identity_of(const std::string& job) {
  engine::Identity identity;
  identity.job = job;
  return identity;
}

TEST(PoolTransfersTest, ClientsOfAJobShareThem) {
  const auto first = transfers_of(kReducers, identity_of("a"));
  EXPECT_EQ(first, transfers_of(kReducers, identity_of("a")));
  EXPECT_NE(first, transfers_of(kReducers, identity_of("b")));
  EXPECT_NE(first, transfers_of(std::span(kReducers).first(1), identity_of("a")));
  engine::Identity other = identity_of("a");
  other.token.emplace();
  EXPECT_NE(first, transfers_of(kReducers, other));
}

TEST(PoolTransfersTest, EndWithTheLastClient) {
  std::weak_ptr<PoolTransfers> first = transfers_of(kReducers, identity_of("a"));
  EXPECT_TRUE(first.expired());
  EXPECT_NE(transfers_of(kReducers, identity_of("a")), nullptr);
}

// All turns are taken when the process forks: the child does not wait for threads that it does not have.
TEST(PoolTransfersTest, AreNewAfterAFork) {
  const auto pool = transfers_of(kReducers, identity_of("a"));
  std::deque<TransferTurns::Turn> taken;
  for (uint32_t i = 0; i < TransferTurns::kAtOnce; ++i) taken.push_back(*pool->pushes.take(0));
  ASSERT_FALSE(pool->pushes.take(0));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(transfers_of(kReducers, identity_of("a"))->pushes.take(0) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::store_client
