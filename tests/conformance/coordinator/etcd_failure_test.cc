// etcd ends and comes back: a call fails within its deadline, and everything goes on afterwards.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "core/text_encoding.h"
#include "store/coordinator/etcd/etcd_coordinator.h"
#include "tests/conformance/coordinator/coordinator_fixture.h"

namespace sluice::test {
namespace {

using store::ChangeResult;
using store::EtcdCoordinator;
using store::EtcdOptions;

class EtcdFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = EtcdProcess::skip_reason(); !reason.empty()) GTEST_SKIP() << reason;
    options_.endpoints = {{.host = "127.0.0.1", .port = shared_etcd().port()}};
    options_.root = next_root();
    options_.request_timeout = 20 * kSecond;
    coordinator_ = value_of(EtcdCoordinator::make(options_));
  }
  // A later test needs the server.
  void TearDown() override {
    if (coordinator_ != nullptr && !coordinator_->get("any")) shared_etcd().start();
  }
  EtcdOptions options_;
  std::unique_ptr<store::Coordinator> coordinator_;
};

// Several reducers compact the same history.
TEST_F(EtcdFailure, HistoryIsCompacted) {
  options_.history = 0;
  options_.least_compacted = 20;
  const auto one = value_of(EtcdCoordinator::make(options_)),
             other = value_of(EtcdCoordinator::make(options_));
  store::Revision first = 0, last = 0;
  for (int i = 0; i < 100; ++i) {
    store::Coordinator& writer = i % 2 == 0 ? *one : *other;
    const ChangeResult done = i == 0 ? create(writer, "k", "0") : swap(writer, "k", last, std::to_string(i));
    ASSERT_TRUE(done.is_done());
    last = done.revision;
    if (i == 0) first = last;
  }
  store::etcd::EtcdClient client(options_);
  const auto at = [&](store::Revision revision) {
    const nlohmann::json request = {{"key", base64_of("any")}, {"revision", std::to_string(revision)}};
    return value_of(client.call("/v3/kv/range", request, store::etcd::EtcdClient::Repeat::kSafe)).verdict;
  };
  EXPECT_EQ(at(first), store::etcd::EtcdClient::Verdict::kCompacted);
  EXPECT_EQ(at(last - 1), store::etcd::EtcdClient::Verdict::kDone) << "what is young stays";
  EXPECT_EQ(get(*one, "k")->value, "99");
}

TEST(HistoryLimit, KeepsWhatIsYoungAndWaitsForEnough) {
  store::etcd::HistoryLimit limit(10 * kSecond, 5);
  EXPECT_EQ(limit.on_change(100, kSecond), std::nullopt);
  EXPECT_EQ(limit.on_change(200, 10 * kSecond), std::nullopt) << "too young";
  EXPECT_EQ(limit.on_change(201, 11 * kSecond), 100);
  EXPECT_EQ(limit.on_change(202, 12 * kSecond), std::nullopt) << "once";
  EXPECT_EQ(limit.on_change(204, 60 * kSecond), std::nullopt) << "too few";
  EXPECT_EQ(limit.on_change(206, 61 * kSecond), 201);
}

TEST_F(EtcdFailure, KilledServerIsUnavailableUntilItRunsAgain) {
  const ChangeResult made = create(*coordinator_, "k", "1");
  const store::Lease lease = value_of(coordinator_->grant(600 * kSecond));
  shared_etcd().kill();
  const auto expect_unavailable = [&](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_TRUE(store::is_unavailable(result.error())) << result.error().text;
    EXPECT_NE(result.error().text.find("etcd at 127.0.0.1:" + std::to_string(shared_etcd().port()) + ": "),
              std::string::npos)
        << result.error().text;
  };
  expect_unavailable(coordinator_->get("k"));
  expect_unavailable(coordinator_->list("k"));
  expect_unavailable(coordinator_->create("other", ""));
  expect_unavailable(coordinator_->compare_and_swap("k", made.revision, "2"));
  expect_unavailable(coordinator_->remove("k", made.revision));
  expect_unavailable(coordinator_->grant(kSecond));
  expect_unavailable(coordinator_->keep_alive(lease.id));
  expect_unavailable(coordinator_->revoke(lease.id));

  shared_etcd().start();
  EXPECT_EQ(get(*coordinator_, "k"), made.entry);
  EXPECT_TRUE(swap(*coordinator_, "k", made.revision, "2").is_done());
  EXPECT_TRUE(value_of(coordinator_->keep_alive(lease.id)));
}

// The writer repeats a change whose outcome it does not know only after it has read the key.
TEST_F(EtcdFailure, AcknowledgedChangesAreThereAfterRestarts) {
  constexpr int kChanges = 60;
  ASSERT_TRUE(create(*coordinator_, "n", "0").is_done());
  const Nanos deadline = monotonic_now() + kTestDeadline;
  std::set<int> restarts = {kChanges / 3, 2 * kChanges / 3};
  int acknowledged = 0;
  while (acknowledged < kChanges && monotonic_now() < deadline) {
    const auto current = coordinator_->get("n");
    if (!current) continue;
    const int n = std::stoi((*current)->value);
    ASSERT_GE(n, acknowledged);
    ASSERT_LE(n, acknowledged + 1);
    acknowledged = n;
    const auto change = [&] {
      const auto changed =
          coordinator_->compare_and_swap("n", (*current)->revision, std::to_string(acknowledged + 1));
      if (changed && changed->is_done()) ++acknowledged;
      return static_cast<bool>(changed);
    };
    if (restarts.erase(n) != 0) {
      shared_etcd().kill();
      EXPECT_FALSE(change());
      shared_etcd().start();
    }
    static_cast<void>(change());
  }
  EXPECT_EQ(acknowledged, kChanges);
  EXPECT_EQ(get(*coordinator_, "n")->value, std::to_string(kChanges));
}

// A closed port, a server that accepts and never answers, and etcd.
TEST_F(EtcdFailure, CallsGoToAnotherServer) {
  const int silent = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int closed = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto bound_port = [](int fd) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  };
  EtcdOptions options = options_;
  options.endpoints = {{.host = "127.0.0.1", .port = bound_port(closed)},
                       {.host = "127.0.0.1", .port = bound_port(silent)},
                       {.host = "localhost", .port = shared_etcd().port()}};
  options.request_timeout = 10 * kSecond;  // half of it for the silent server
  ASSERT_EQ(::listen(silent, 16), 0);
  const auto coordinator = value_of(EtcdCoordinator::make(options));
  EXPECT_EQ(get(*coordinator, "k"), std::nullopt);
  const ChangeResult made = create(*coordinator, "k", "1");
  EXPECT_TRUE(made.is_done());
  EXPECT_EQ(get(*coordinator_, "k"), made.entry);

  // A change that the silent server may have received is not sent to the next one.
  options.request_timeout = 3 * kSecond;
  options.endpoints = {options.endpoints[1], options.endpoints[2]};
  const auto impatient = value_of(EtcdCoordinator::make(options));
  const auto unknown = impatient->create("once", "");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::kTimeout);
  // The text continues with the time that was left after the connection was made, at most 3 s.
  EXPECT_NE(unknown.error().text.find("no answer in "), std::string::npos) << unknown.error().text;
  EXPECT_EQ(get(*coordinator_, "once"), std::nullopt);
  ::close(silent);
  ::close(closed);
}

}  // namespace
}  // namespace sluice::test
