#include "gpu_client/engine/pool_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/clock.h"
#include "tests/unit/gpu_client/answering_reducer.h"

namespace sluice::engine {
namespace {

using test::AnsweringReducer;
using ::testing::ElementsAre;

using Connection = AnsweringReducer::Connection;

constexpr uint64_t kOfTheSession = 70;

class PoolWatchTest : public ::testing::Test, protected PoolWatch::Listener {
 protected:
  PoolWatchTest() {
    options_.first_view.window_bytes = 256 * kKiB;
    options_.first_view.slot_bytes = 16 * kKiB;
    options_.first_view.reducers = {{.id = kOfTheSession, .lanes = 1, .weight = 1, .alive = true}};
    options_.reducers = {{.host = "127.0.0.1", .port = 1, .weight = 1}};
    options_.who.ranks = 2;
    options_.who.survives = true;
    options_.incarnation = 99;
    options_.lanes = 1;
    options_.join_timeout = options_.seat_timeout = 20 * kSecond;
    options_.first_pause = 20 * kMillisecond;
    options_.longest_pause = 100 * kMillisecond;
  }
  void begin() { watch_ = std::make_unique<PoolWatch>(options_, static_cast<PoolWatch::Listener&>(*this)); }
  [[nodiscard]] static config::Endpoint at(const AnsweringReducer& reducer) {
    return {.host = "127.0.0.1", .port = reducer.port(), .weight = 1};
  }
  // The session's own stays in the list.
  void list(std::vector<config::Endpoint> more) {
    more.insert(more.begin(), options_.reducers.front());
    ASSERT_TRUE(watch_->set({.reducers = std::move(more), .file = {}}).has_value());
  }
  // Who is there is asked, and a seat is taken: three connections.
  static std::vector<AnsweringReducer::Step> give_seat(uint64_t id) {
    return {[id](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, id, 1)); },
            [id](Connection& c) {
              static_cast<void>(AnsweringReducer::welcome(c, id, 1));
              static_cast<void>(c.expect<wire::Join>());
              c.send(wire::Joined{.handle = 6, .heartbeat_ms = 1000, .peer_timeout_ms = 9000}, 6);
            },
            [id](Connection& c) {
              static_cast<void>(AnsweringReducer::welcome(c, id, 1));
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
  void on_reducer_found(const config::Endpoint& /*address*/, Seat seat) override {
    const std::lock_guard lock(mutex_);
    found_.push_back(seat.id);
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

// Each look at one that does not answer lasts as long as it may, and is due again before others were looked
// at.
TEST_F(PoolWatchTest, AddressesThatDoNotAnswerKeepNobodyWaiting) {
  const AnsweringReducer silent, silent_too;
  AnsweringReducer answers;
  answers.play(give_seat(50));
  begin();
  ASSERT_NO_FATAL_FAILURE(list({at(silent), at(silent_too), at(answers)}));
  EXPECT_TRUE(wait([&] { return !found_.empty(); }));
  EXPECT_THAT(found(), ElementsAre(50));
  watch_.reset();
}

// It comes back under another id each time, as one that a session has removed does.
TEST_F(PoolWatchTest, OneThatOthersCannotJoinIsTriedLessAndLess) {
  AnsweringReducer answers;
  std::vector<AnsweringReducer::Step> steps;
  for (uint64_t id = 50; id < 54; ++id) std::ranges::move(give_seat(id), std::back_inserter(steps));
  answers.play(std::move(steps));
  begin();
  ASSERT_NO_FATAL_FAILURE(list({at(answers)}));
  Nanos begun = 0;
  for (uint64_t id = 50; id < 54; ++id) {
    ASSERT_TRUE(wait([&] { return found_.size() == id - 49; }));
    if (begun == 0) begun = monotonic_now();
    if (id == 53) break;
    ASSERT_TRUE(watch_->gone(id).has_value());
    ASSERT_TRUE(watch_->gone(id).has_value());  // told twice, and counts once
  }
  EXPECT_THAT(found(), ElementsAre(50, 51, 52, 53));
  EXPECT_GE(monotonic_now() - begun, (20 + 80 + 320) * kMillisecond);
  watch_.reset();
}

TEST_F(PoolWatchTest, TellsOfThoseThatTheListHasNoMoreOnceAnotherIsSeated) {
  AnsweringReducer answers;
  answers.play(give_seat(50));
  begin();
  ASSERT_TRUE(watch_->set({.reducers = {at(answers)}, .file = {}}).has_value());
  ASSERT_TRUE(wait([&] { return !found_.empty(); }));
  EXPECT_TRUE(unlisted().empty()) << "nobody of the list is seated yet";
  watch_->seated(50);
  ASSERT_TRUE(wait([&] { return !unlisted_.empty(); }));
  EXPECT_THAT(unlisted().front(), ElementsAre(kOfTheSession));
  watch_.reset();
}

}  // namespace
}  // namespace sluice::engine
