// Class ScriptedReducer leads one rank through a session and then follows a script. It produces endings
// that a real reducer shows only by accident. It reduces nothing and has its own thread.
#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/units.h"
#include "tests/support/scripted_client.h"

namespace sluice::test {

class ScriptedReducer {
 public:
  struct Script {
    uint64_t id = 1;
    std::optional<wire::Abort> abort{};  // sent on the control connection once the session is committed
    Nanos acknowledge_after = 0;         // from LEAVE to LEAVE_ACK; the lane is closed with it
    uint64_t features = 0;               // of WELCOME
    std::optional<wire::Heartbeat> heartbeat{};  // sent on the control connection with each one of the rank
  };

  explicit ScriptedReducer(Script script);
  // Waits until the rank has disconnected.
  ~ScriptedReducer() {
    if (thread_.joinable()) thread_.join();
  }
  ScriptedReducer(const ScriptedReducer&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  // The features of every HELLO, in order. To be called after the rank has disconnected.
  [[nodiscard]] const std::vector<uint64_t>& features_seen() const noexcept { return features_seen_; }
  [[nodiscard]] int heartbeats() const noexcept { return heartbeats_.load(); }  // of the rank
  void join() { thread_.join(); }

 private:
  [[nodiscard]] ScriptedConnection accept();
  [[nodiscard]] std::optional<ReceivedFrame> welcome(ScriptedConnection& c);
  void serve();

  const Script script_;
  transport::tcp::Socket listener_;
  uint16_t port_ = 0;
  std::vector<uint64_t> features_seen_;
  std::atomic<int> heartbeats_{0};
  std::thread thread_;
};

}  // namespace sluice::test
