#include "gpu_client/engine/membership/pool_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/log.h"
#include "tests/unit/gpu_client/scripted_listener.h"

namespace sluice::engine {
namespace {

using test::ScriptedListener;
using ::testing::ElementsAre;

using Connection = ScriptedListener::Connection;

constexpr uint64_t kMember = 70;  // reducer of the session's first view

class PoolWatchTest : public ::testing::Test, protected PoolWatch::Listener {
 protected:
  PoolWatchTest() {
    options_.first_view.window_bytes = 256 * kKiB;
    options_.first_view.slot_bytes = 16 * kKiB;
    options_.first_view.reducers = {{.id = kMember, .lanes = 1, .weight = 1, .alive = true}};
    options_.join.reducers = {{.host = "127.0.0.1", .port = 1, .weight = 1}};
    options_.join.identity.ranks = 2;
    options_.join.identity.fault_tolerant = true;
    options_.incarnation = 99;
    options_.join.lanes = 1;
    options_.join.join_timeout = options_.reservation_timeout = 20 * kSecond;
    options_.probe_timeout = 20 * kSecond;
    options_.first_pause = 20 * kMillisecond;
    options_.longest_pause = 100 * kMillisecond;
  }
  void begin() { watch_ = std::make_unique<PoolWatch>(options_, static_cast<PoolWatch::Listener&>(*this)); }
  [[nodiscard]] static config::Endpoint at(const ScriptedListener& reducer) {
    return {.host = "127.0.0.1", .port = reducer.port(), .weight = 1};
  }
  // Sets the list to the member and the given addresses.
  void set_list(std::vector<config::Endpoint> added) {
    added.insert(added.begin(), options_.join.reducers.front());
    ASSERT_TRUE(watch_->set_pool({.reducers = std::move(added), .file = {}}).has_value());
  }
  // The steps of a probe and a reservation with one lane: three connections.
  static std::vector<ScriptedListener::Step> grant_reservation(uint64_t id) {
    return {[id](Connection& c) { static_cast<void>(ScriptedListener::welcome(c, id, 1)); },
            [id](Connection& c) {
              static_cast<void>(ScriptedListener::welcome(c, id, 1));
              static_cast<void>(c.expect<wire::Join>());
              c.send(wire::Joined{.handle = 6, .heartbeat_ms = 1000, .peer_timeout_ms = 9000}, 6);
            },
            [id](Connection& c) {
              static_cast<void>(ScriptedListener::welcome(c, id, 1));
              static_cast<void>(c.expect<wire::Attach>());
              c.send(wire::Attached{.slots = 16}, 6);
            }};
  }
  [[nodiscard]] bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  [[nodiscard]] std::vector<uint64_t> found() {
    const std::lock_guard lock(mutex_);
    return found_;
  }
  [[nodiscard]] std::vector<std::vector<uint64_t>> unlisted() {
    const std::lock_guard lock(mutex_);
    return unlisted_;
  }
  void on_reducer_found(const config::Endpoint& /*address*/, ReducerReservation reservation) override {
    const std::lock_guard lock(mutex_);
    found_.push_back(reservation.id);
    changed_.notify_all();
  }
  void on_unlisted(std::vector<uint64_t> reducers) override {
    const std::lock_guard lock(mutex_);
    unlisted_.push_back(std::move(reducers));
    changed_.notify_all();
  }

  PoolWatchOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> found_;
  std::vector<std::vector<uint64_t>> unlisted_;
  std::unique_ptr<PoolWatch> watch_;
};

// Each probe of an address without an answer lasts until its timeout, and is due again before the other
// addresses were probed.
TEST_F(PoolWatchTest, SilentAddressesDoNotBlockOthers) {
  const ScriptedListener silent, silent_too;
  ScriptedListener answers;
  answers.serve(grant_reservation(50));
  options_.probe_timeout = kSecond;
  begin();
  ASSERT_NO_FATAL_FAILURE(set_list({at(silent), at(silent_too), at(answers)}));
  EXPECT_TRUE(wait([&] { return !found_.empty(); }));
  EXPECT_THAT(found(), ElementsAre(50));
  watch_.reset();
}

// /proc/self/mem is a regular file whose first byte cannot be read, not even by root.
TEST_F(PoolWatchTest, LogsAFileThatCannotBeReadOnce) {
  static std::atomic<unsigned> warnings;
  warnings = 0;
  log::set_sink([](log::Level level, std::string_view line) noexcept {
    if (level == log::Level::kWarn && line.find("not reloaded") != std::string_view::npos) ++warnings;
  });
  options_.file_check_interval = kMillisecond;
  begin();
  ASSERT_TRUE(watch_->set_pool({.reducers = options_.join.reducers, .file = "/proc/self/mem"}).has_value());
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  while (warnings == 0 && monotonic_now() < deadline) std::this_thread::yield();
  // Every second check reads the file: about 25 more readings, of which nothing tells that they happened.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(warnings, 1u);
  ASSERT_TRUE(watch_->reread().has_value());  // somebody waits for the result of this one
  while (warnings == 1 && monotonic_now() < deadline) std::this_thread::yield();
  EXPECT_EQ(warnings, 2u);
  watch_.reset();
  log::set_sink(nullptr);
}

// The reducer returns under another id each time, as a reducer that was removed from a session does.
TEST_F(PoolWatchTest, RetriesAReducerThatOthersCannotJoinLessAndLess) {
  ScriptedListener answers;
  std::vector<ScriptedListener::Step> steps;
  for (uint64_t id = 50; id < 54; ++id) std::ranges::move(grant_reservation(id), std::back_inserter(steps));
  answers.serve(std::move(steps));
  begin();
  ASSERT_NO_FATAL_FAILURE(set_list({at(answers)}));
  Nanos begun = 0;
  for (uint64_t id = 50; id < 54; ++id) {
    ASSERT_TRUE(wait([&] { return found_.size() == id - 49; }));
    if (begun == 0) begun = monotonic_now();
    if (id == 53) break;
    ASSERT_TRUE(watch_->reducer_removed(id).has_value());
    ASSERT_TRUE(watch_->reducer_removed(id).has_value());  // the second call has no effect
  }
  EXPECT_THAT(found(), ElementsAre(50, 51, 52, 53));
  EXPECT_GE(monotonic_now() - begun, (20 + 80 + 320) * kMillisecond);
  watch_.reset();
}

TEST_F(PoolWatchTest, ReportsUnlistedReducersOnceAnotherIsConfirmed) {
  ScriptedListener answers;
  answers.serve(grant_reservation(50));
  begin();
  ASSERT_TRUE(watch_->set_pool({.reducers = {at(answers)}, .file = {}}).has_value());
  ASSERT_TRUE(wait([&] { return !found_.empty(); }));
  EXPECT_TRUE(unlisted().empty()) << "no reducer of the list is confirmed yet";
  watch_->set_confirmed(50);
  ASSERT_TRUE(wait([&] { return !unlisted_.empty(); }));
  EXPECT_THAT(unlisted().front(), ElementsAre(kMember));
  watch_.reset();
}

}  // namespace
}  // namespace sluice::engine
