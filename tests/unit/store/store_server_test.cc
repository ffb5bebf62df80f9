// Deletions of models that others delete and create again at the same time.
#include "store/server/store_server.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "store/coordinator/sqlite/sqlite_coordinator.h"
#include "store/model/model_json.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

// A coordinator in a file. Runs `after_get` once, after the next get() of this key, and `after_remove` once.
class InterruptedCoordinator final : public Coordinator {
 public:
  explicit InterruptedCoordinator(std::unique_ptr<Coordinator> real) : real_(std::move(real)) {}

  Result<std::optional<Entry>> get(std::string_view key) override {
    auto entry = real_->get(key);
    if (key == key_of_get && after_get) std::exchange(after_get, nullptr)();
    return entry;
  }
  Result<ChangeResult> remove(std::string_view key, Revision expected) override {
    auto removed = real_->remove(key, expected);
    if (after_remove) std::exchange(after_remove, nullptr)();
    return removed;
  }
  Result<Listing> list(std::string_view prefix) override {
    if (prefix == kModelKeys && at_list) at_list();
    return real_->list(prefix);
  }
  Result<ChangeResult> create(std::string_view key, std::string_view value, LeaseId lease) override {
    return real_->create(key, value, lease);
  }
  Result<ChangeResult> compare_and_swap(std::string_view key, Revision expected, std::string_view value,
                                        LeaseId lease) override {
    return real_->compare_and_swap(key, expected, value, lease);
  }
  Result<Lease> grant(Nanos ttl) override { return real_->grant(ttl); }
  Result<bool> keep_alive(LeaseId lease) override { return real_->keep_alive(lease); }
  Result<void> revoke(LeaseId lease) override { return real_->revoke(lease); }

  std::string key_of_get;
  std::function<void()> after_get, after_remove;
  std::function<void()> at_list;  // each one of models

 private:
  const std::unique_ptr<Coordinator> real_;
};

class StoreServerTest : public testing::Test {
 protected:
  StoreServerTest() {
    coordinator_ = std::make_shared<InterruptedCoordinator>(
        SqliteCoordinator::open(folder_.path() + "/coordinator.sqlite").value());
    StoreOptions options;
    options.folder = folder_.path();
    options.address = "127.0.0.1:1";
    options.coordinator = coordinator_;
    options.connect = [](const std::string&, Nanos) -> Result<transport::tcp::Socket> {
      return fail(Errc::kReset, "nobody");
    };
    options.log = [](const std::string&) {};
    options.monitor = std::make_shared<ModelMonitor>(uint64_t{1} << 30);
    server_ = StoreServer::start(std::move(options)).value();
  }
  uint64_t create(const std::string& job) {
    const auto created = server_->create(model_text(test::small_model()), job);
    EXPECT_TRUE(created) << created.error().text;
    return created ? nlohmann::json::parse(*created)["model"].get<uint64_t>() : 0;
  }
  void replace() {
    EXPECT_TRUE(server_->remove(name_, "a"));
    other_ = create("b");
  }
  void expect_the_other_job_has_its_model() {
    const auto described = server_->describe(name_);
    ASSERT_TRUE(described) << described.error().text;
    const auto json = nlohmann::json::parse(*described);
    EXPECT_EQ(json["job"], "b");
    EXPECT_EQ(json["model"], other_);
    EXPECT_TRUE(server_->find(other_)) << "with its files";
    EXPECT_EQ(create("b"), other_) << "found again";
  }

  const std::string name_ = test::small_model().name;
  const sluice::test::TemporaryFolder folder_;
  std::shared_ptr<InterruptedCoordinator> coordinator_;
  std::unique_ptr<StoreServer> server_;
  uint64_t other_ = 0;
};

TEST_F(StoreServerTest, RemovesTheModelWhoseJobItCompared) {
  create("a");
  coordinator_->key_of_get = model_key(name_);
  coordinator_->after_get = [this] { replace(); };
  const auto removed = server_->remove(name_, "a");
  EXPECT_FALSE(removed) << "the model with this name belongs to another job now";
  expect_the_other_job_has_its_model();
}

TEST_F(StoreServerTest, LeavesAModelThatIsCreatedWhileTheOldOneIsRemoved) {
  create("a");
  coordinator_->after_remove = [this] { other_ = create("b"); };
  EXPECT_TRUE(server_->remove(name_, "a"));
  expect_the_other_job_has_its_model();
}

TEST_F(StoreServerTest, AModelDoesNotTakeTheStateOfADeletedOne) {
  const uint64_t mine = create("a");
  const auto record = coordinator_->get(model_key(name_)).value().value();
  auto entry = coordinator_->get(state_key(name_)).value().value();
  auto state = parse_state(entry).value();
  EXPECT_EQ(state.model, mine);
  state.is_started = true;
  state.version = 9;
  ASSERT_TRUE(
      coordinator_->compare_and_swap(entry.key, entry.revision, state_text(state), kNoLease)->is_done());
  ASSERT_TRUE(coordinator_->remove(record.key, record.revision)->is_done())
      << "and then its reducer has stopped";
  EXPECT_FALSE(server_->describe(name_));
  other_ = create("b");
  expect_the_other_job_has_its_model();
  const auto json = nlohmann::json::parse(server_->describe(name_).value());
  EXPECT_EQ(json["started"], false);
  EXPECT_EQ(json["version"], 0);
}

TEST_F(StoreServerTest, ReadsAStateOfAReleaseThatDidNotSayWhose) {
  other_ = create("b");
  const auto entry = coordinator_->get(state_key(name_)).value().value();
  auto json = nlohmann::json::parse(entry.value);
  ASSERT_EQ(json.erase("model"), 1U);
  ASSERT_TRUE(coordinator_->compare_and_swap(entry.key, entry.revision, json.dump(), kNoLease)->is_done());
  expect_the_other_job_has_its_model();
  EXPECT_TRUE(server_->remove(name_, "b"));
  EXPECT_FALSE(server_->describe(name_));
  EXPECT_FALSE(coordinator_->get(state_key(name_)).value());
}

// Each search lists and parses all models.
TEST_F(StoreServerTest, SearchesForAnUnknownModelInATurnOfTheJob) {
  std::mutex mutex;
  std::condition_variable changed;
  int searches = 0, at_once = 0, most = 0;
  coordinator_->at_list = [&] {
    std::unique_lock lock(mutex);
    ++searches;
    most = std::max(most, ++at_once);
    changed.notify_all();
    // Another one of the same job would come now.
    changed.wait_for(lock, std::chrono::milliseconds(300), [&] { return at_once == 3; });
    --at_once;
  };
  std::vector<transport::tcp::MessageChannel> clients;
  for (const char* const job : {"a", "a", "b"}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    server_->adopt(transport::tcp::Socket(ends[0]), "a client", job, 0, nullptr);
    clients.emplace_back(transport::tcp::Socket(ends[1]));
  }
  const auto soon = [] { return monotonic_now() + 20 * kSecond; };
  for (auto& client : clients) {
    ASSERT_TRUE(client.receive(soon()).ok());
    ASSERT_TRUE(client.send(wire::Pull{.model = 12345}, soon()).ok());
  }
  for (auto& client : clients) {
    wire::Failed failed;
    ASSERT_TRUE(client.receive(soon()).ok());
    ASSERT_TRUE(client.decode(failed).ok());
    EXPECT_EQ(failed.code, Errc::kUnknownSession);
  }
  const std::scoped_lock lock(mutex);
  EXPECT_EQ(searches, 3);
  EXPECT_LE(most, 2) << "one of each job";
}

}  // namespace
}  // namespace sluice::store
