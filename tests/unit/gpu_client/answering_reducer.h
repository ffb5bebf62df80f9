// The other end of connections that a rank opens by itself, answered by hand: the test says for one
// connection after the other what happens on it.
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

namespace sluice::engine::test {

class AnsweringReducer {
 public:
  using Connection = sluice::test::ScriptedConnection;
  using Step = std::function<void(Connection&)>;

  explicit AnsweringReducer(int backlog = 64)
      : listener_(std::move(transport::tcp::listen_on("127.0.0.1", 0, {}, backlog).value())),
        port_(transport::tcp::bound_port(listener_.fd()).value()) {}
  ~AnsweringReducer() { finish(); }
  AnsweringReducer(const AnsweringReducer&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }

  // Accepts one connection for each step, which then has it in hand; the connections stay open until
  // finish().
  void play(std::vector<Step> steps) {
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
  // Waits for the last step, then closes all.
  void finish() {
    if (thread_.joinable()) thread_.join();
    connections_.clear();
  }
  // Somebody waits to be accepted, or comes within the time.
  [[nodiscard]] bool called(int within_ms = 0) const {
    pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, within_ms) == 1;
  }
  [[nodiscard]] Connection accept() const {
    pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&p, 1, 20'000) != 1) throw std::runtime_error("nobody connects");
    return Connection(
        transport::tcp::Socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  }

  // HELLO and WELCOME.
  static wire::Hello welcome(Connection& c, uint64_t id, uint16_t lanes = 2,
                             uint64_t features = wire::kFeaturesSurvive) {
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
