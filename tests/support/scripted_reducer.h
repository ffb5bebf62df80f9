// A reducer that takes one rank through a session by hand, and then does what its script says: for what a
// worker makes of ends that a real reducer brings about only by accident. It reduces nothing. One thread of
// its own.
#pragma once

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
  };

  explicit ScriptedReducer(Script script);
  // Waits until the rank is gone.
  ~ScriptedReducer() {
    if (thread_.joinable()) thread_.join();
  }
  ScriptedReducer(const ScriptedReducer&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  // Of every HELLO, in order; for when the rank is gone.
  [[nodiscard]] const std::vector<uint64_t>& features_seen() const noexcept { return features_seen_; }
  void join() { thread_.join(); }

 private:
  [[nodiscard]] ScriptedConnection accept();
  [[nodiscard]] std::optional<ReceivedFrame> welcome(ScriptedConnection& c);
  void serve();

  const Script script_;
  transport::tcp::Socket listener_;
  uint16_t port_ = 0;
  std::vector<uint64_t> features_seen_;
  std::thread thread_;
};

}  // namespace sluice::test
