// Class ScriptedListener plays a reducer for connections that a rank opens. It accepts the connections one
// after the other and runs the test's step for each.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/scripted_client.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::engine::test {

class ScriptedListener {
 public:
  using Connection = sluice::test::ScriptedConnection;
  using Step = std::function<void(Connection&)>;

  explicit ScriptedListener(int backlog = 64)
      : listener_(std::move(transport::tcp::listen_on("127.0.0.1", 0, {}, backlog).value())),
        port_(transport::tcp::bound_port(listener_.fd()).value()) {}
  ~ScriptedListener() { finish(); }
  ScriptedListener(const ScriptedListener&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }

  // Accepts one connection per step and passes it to the step. The connections stay open until finish().
  void serve(std::vector<Step> steps) {
    thread_ = std::thread([this, steps = std::move(steps)] {
      try {
        for (const Step& step : steps) {
          connections_.push_back(accept());
          step(connections_.back());
        }
      } catch (const std::exception& e) {
        ADD_FAILURE() << "reducer, connection " << connections_.size() << ": " << e.what();
      }
    });
  }
  // Waits for the last step and closes all connections.
  void finish() {
    if (thread_.joinable()) thread_.join();
    connections_.clear();
  }
  // True when a connection waits to be accepted, or arrives within the time.
  [[nodiscard]] bool has_connection(int within_ms = 0) const {
    pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, within_ms) == 1;
  }
  [[nodiscard]] Connection accept() const {
    pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&p, 1, 20'000) != 1) throw std::runtime_error("no connection within 20 s");
    return Connection(
        transport::tcp::Socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  }

  // Receives HELLO and sends WELCOME.
  static wire::Hello welcome(Connection& c, uint64_t id, uint16_t lanes = 2,
                             uint64_t features = wire::kFaultToleranceFeatures | wire::kFeatureTreeOrder) {
    auto hello = c.expect<wire::Hello>();
    wire::Welcome w;
    w.version = wire::kVersionMax;
    w.lanes = lanes;
    w.max_slot_bytes = wire::kMaxPayload;
    w.reducer = id;
    w.features = features;
    c.send(w);
    return hello;
  }

 private:
  transport::tcp::Socket listener_;
  uint16_t port_;
  std::vector<Connection> connections_;
  std::thread thread_;
};

}  // namespace sluice::engine::test
