// Class HeartbeatMonitorFixture has a monitor with one session of two reducers. The test holds the
// reducers' ends of the control connections.
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
#include "gpu_client/engine/control/heartbeat_monitor.h"

namespace sluice::engine::test {

class HeartbeatMonitorFixture : public ::testing::Test, protected HeartbeatListener {
 protected:
  void begin(Nanos heartbeat = 20 * kMillisecond, Nanos timeout = 20 * kSecond, bool fault_tolerant = false) {
    monitor_ = HeartbeatMonitor::acquire().value();
    std::vector<ControlPeer> peers;
    for (int i = 0; i < 2; ++i) {
      auto [mine, theirs] = connection(i);
      peers.push_back(
          {.connection = std::move(mine), .heartbeat = heartbeat, .timeout = timeout, .paths = paths_});
      reducers_.push_back(std::move(theirs));
    }
    id_ = monitor_->add(std::move(peers), *this, fault_tolerant);
  }
  // Returns the rank's end and the end of reducer i.
  static std::pair<ControlConnection, ControlConnection> connection(int i) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    return {ControlConnection(transport::tcp::Socket(fds[0]), "reducer " + std::to_string(i), 1),
            ControlConnection(transport::tcp::Socket(fds[1]), "worker", 1)};
  }
  void TearDown() override {
    if (monitor_) monitor_->remove(id_);
  }

  // Returns the next frame of `type` that reducer i receives and skips others; nullopt when the connection
  // ends first.
  std::optional<std::vector<std::byte>> expect(int i, wire::FrameType type) {
    const Nanos deadline = monotonic_now() + 10 * kSecond;
    while (monotonic_now() < deadline) {
      ControlConnection::Frame frame;
      const Status s = reducers_[static_cast<size_t>(i)].receive(frame);
      if (s.code() == Errc::kWouldBlock) {
        pollfd p{.fd = reducers_[static_cast<size_t>(i)].fd(), .events = POLLIN, .revents = 0};
        ::poll(&p, 1, 100);
        continue;
      }
      if (!s.ok()) return std::nullopt;
      if (frame.header.type == type) return std::vector<std::byte>(frame.body.begin(), frame.body.end());
    }
    ADD_FAILURE() << "no " << wire::to_string(type) << " within 10 s";
    return std::nullopt;
  }
  // Returns the next message of type M that reducer i receives.
  template <typename M>
  M expect_message(int i) {
    M message;
    const auto body = expect(i, M::kType);
    EXPECT_TRUE(body && wire::decode_body(std::span<const std::byte>(*body), message).ok());
    return message;
  }
  void report_waiting(size_t i, uint32_t ranks, std::vector<uint32_t> missing, uint32_t waited_ms) {
    wire::Heartbeat beat;
    beat.missing_ranks = ranks;
    beat.missing.assign(missing.begin(), missing.end());
    beat.waited_ms = waited_ms;
    EXPECT_TRUE(reducers_[i].send(beat).ok());
  }
  void acknowledge_leave(int i) {
    EXPECT_TRUE(expect(i, wire::FrameType::kLeave).has_value());
    EXPECT_TRUE(reducers_[static_cast<size_t>(i)].send(wire::LeaveAck{}).ok());
  }
  // Makes reducer 0 send bytes that are no frame.
  void send_junk() {
    const char junk[] = "GET / HTTP/1.1\r\nHost: reducer\r\nAccept: everything that there is\r\n\r\n";
    EXPECT_GT(::send(reducers_[0].fd(), junk, sizeof junk, 0), 64);
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
  void on_progress_due() noexcept override {
    std::unique_lock lock(mutex_);
    if (stall_ != 0) {
      turns_after_stall_ = 0;
      changed_.wait_for(lock, std::chrono::nanoseconds(std::exchange(stall_, 0)), [] { return false; });
    } else {
      ++turns_after_stall_;
    }
    changed_.notify_all();
  }
  void on_session_lost(Errc code, std::string text, Rank rank) noexcept override {
    set([&] { ++losses_, code_ = code, text_ = text, rank_ = rank; });
  }
  void on_waiting(const WaitingStatus& waiting) noexcept override {
    set([&] { waiting_ = waiting; });
  }
  uint64_t first_unfinished() const noexcept override { return first_unfinished_; }
  void on_path_warning(const std::string& text) noexcept override {
    set([&] { path_warnings_.push_back(text); });
  }
  void on_left() noexcept override {
    set([&] { left_ = true; });
  }
  void on_control_lost(size_t peer, Errc code, std::string text) noexcept override {
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

  std::shared_ptr<HeartbeatMonitor> monitor_;
  std::shared_ptr<transport::LanePaths> paths_;  // of both reducers; set before begin()
  std::vector<std::string> path_warnings_;
  std::vector<ControlConnection> reducers_;
  uint32_t id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Nanos stall_ = 0;  // the monitor's thread does not run for so long, once
  int turns_after_stall_ = 0;
  int losses_ = 0;
  Errc code_ = Errc::kOk;
  std::string text_;
  Rank rank_ = wire::kNoRank;
  WaitingStatus waiting_;
  std::atomic<uint64_t> first_unfinished_{0};
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
