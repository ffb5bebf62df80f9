// A keeper with a session of two reducers, whose ends of the control connections are in the test's hands.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "gpu_client/engine/keeper.h"

namespace sluice::engine::test {

class KeeperRig : public ::testing::Test, protected Keeper::Listener {
 protected:
  void begin(Nanos heartbeat = 20 * kMillisecond, Nanos timeout = 20 * kSecond, bool survives = false) {
    keeper_ = Keeper::acquire().value();
    std::vector<Keeper::Peer> peers;
    for (int i = 0; i < 2; ++i) {
      auto [mine, theirs] = connection(i);
      peers.push_back({.link = std::move(mine), .heartbeat = heartbeat, .timeout = timeout});
      reducers_.push_back(std::move(theirs));
    }
    id_ = keeper_->add(std::move(peers), *this, survives);
  }
  // The rank's end and reducer i's.
  static std::pair<ControlLink, ControlLink> connection(int i) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    return {ControlLink(transport::tcp::Socket(fds[0]), "reducer " + std::to_string(i), 1),
            ControlLink(transport::tcp::Socket(fds[1]), "worker", 1)};
  }
  void TearDown() override {
    if (keeper_) keeper_->remove(id_);
  }

  // The next frame of `type` that reducer i gets; others are passed over. Nothing when the connection ends
  // first.
  std::optional<std::vector<std::byte>> expect(int i, wire::FrameType type) {
    const Nanos deadline = monotonic_now() + 10 * kSecond;
    while (monotonic_now() < deadline) {
      ControlLink::Frame frame;
      const Status s = reducers_[static_cast<size_t>(i)].receive(frame);
      if (s.code() == Errc::kWouldBlock) {
        pollfd p{.fd = reducers_[static_cast<size_t>(i)].fd(), .events = POLLIN, .revents = 0};
        ::poll(&p, 1, 100);
        continue;
      }
      if (!s.ok()) return std::nullopt;
      if (frame.header.type == type) return std::vector<std::byte>(frame.body.begin(), frame.body.end());
    }
    ADD_FAILURE() << "no " << wire::to_string(type) << " in time";
    return std::nullopt;
  }
  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }
  void set(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void on_session_lost(Errc code, std::string text) noexcept override {
    set([&] { ++losses_, code_ = code, text_ = text; });
  }
  void on_waiting(const Keeper::Waiting& waiting) noexcept override {
    set([&] { waiting_ = waiting; });
  }
  uint64_t finished() const noexcept override { return finished_; }
  void on_left() noexcept override {
    set([&] { left_ = true; });
  }
  void on_peer_gone(size_t peer, Errc code, std::string text) noexcept override {
    set([&] { gone_.push_back({peer, code, text}); });
  }
  void on_view_query(size_t peer, const wire::ViewQuery& query) noexcept override {
    set([&] { queries_.emplace_back(peer, query); });
  }
  void on_view_commit(size_t peer, const wire::ViewCommit& commit) noexcept override {
    set([&] { commits_.emplace_back(peer, commit); });
  }
  void on_drain_notice(size_t peer, const wire::DrainNotice& notice) noexcept override {
    set([&] { notices_.emplace_back(peer, notice); });
  }

  std::shared_ptr<Keeper> keeper_;
  std::vector<ControlLink> reducers_;
  uint64_t id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int losses_ = 0;
  Errc code_ = Errc::kOk;
  std::string text_;
  Keeper::Waiting waiting_;
  std::atomic<uint64_t> finished_{0};
  bool left_ = false;
  struct Gone {
    size_t peer;
    Errc code;
    std::string text;
  };
  std::vector<Gone> gone_;
  std::vector<std::pair<size_t, wire::ViewQuery>> queries_;
  std::vector<std::pair<size_t, wire::ViewCommit>> commits_;
  std::vector<std::pair<size_t, wire::DrainNotice>> notices_;
};

}  // namespace sluice::engine::test
