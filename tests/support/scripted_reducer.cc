#include "tests/support/scripted_reducer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>

#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "wire/view.h"

namespace sluice::test {
namespace {

constexpr uint32_t kHandle = 7;
constexpr uint16_t kLanes = 1;

template <typename M>
M body_of(const ReceivedFrame& frame) {
  M message;
  if (frame.header.type != M::kType ||
      !wire::decode_body(std::span<const std::byte>(frame.payload), message).ok()) {
    throw std::runtime_error(std::string("no ") + wire::to_string(M::kType));
  }
  return message;
}

}  // namespace

ScriptedReducer::ScriptedReducer(Script script)
    : script_(std::move(script)),
      listener_(std::move(transport::tcp::listen_on("127.0.0.1", 0, {}).value())),
      port_(transport::tcp::bound_port(listener_.fd()).value()),
      thread_([this] {
        try {
          serve();
        } catch (const std::exception& e) {
          ADD_FAILURE() << "scripted reducer " << script_.id << ": " << e.what();
        }
      }) {}

ScriptedConnection ScriptedReducer::accept() {
  pollfd p{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
  if (::poll(&p, 1, 20'000) != 1) throw std::runtime_error("no connection within 20 s");
  return ScriptedConnection(
      transport::tcp::Socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

// Receives HELLO, sends WELCOME and returns the next request.
std::optional<ReceivedFrame> ScriptedReducer::welcome(ScriptedConnection& c) {
  features_seen_.push_back(c.expect<wire::Hello>().features);
  wire::Welcome w;
  w.version = wire::kVersionMax;
  w.lanes = kLanes;
  w.max_slot_bytes = wire::kMaxPayload;
  w.reducer = script_.id;
  w.features = script_.features;
  c.send(w);
  return c.receive();
}

void ScriptedReducer::serve() {
  ScriptedConnection control = accept();
  std::optional<ReceivedFrame> request = welcome(control);
  while (!request)
    control = accept(), request = welcome(control);  // the rank repeats a handshake that is too old
  const auto join = body_of<wire::Join>(*request);
  control.send(wire::Joined{.handle = kHandle, .heartbeat_ms = 1000, .peer_timeout_ms = 60'000}, kHandle);

  std::optional<ScriptedConnection> lane = accept();
  request = welcome(*lane);
  if (!request) throw std::runtime_error("no ATTACH");
  static_cast<void>(body_of<wire::Attach>(*request));
  lane->send(wire::Attached{.slots = wire::slots_per_lane(join.window_bytes, join.slot_bytes, join.lanes)},
             kHandle);

  while (const auto frame = control.receive(30 * kSecond)) {
    if (frame->header.type == wire::FrameType::kVote) {
      wire::Verdict verdict;
      verdict.commit = 1;
      verdict.incarnation = 99;
      control.send(verdict, kHandle);
    } else if (frame->header.type == wire::FrameType::kCommit && script_.abort) {
      control.send(*script_.abort, kHandle);
    } else if (frame->header.type == wire::FrameType::kHeartbeat) {
      ++heartbeats_;
      if (script_.heartbeat) control.send(*script_.heartbeat, kHandle);
    } else if (frame->header.type == wire::FrameType::kLeave) {
      // The test case: a slow acknowledgement.
      std::this_thread::sleep_for(std::chrono::nanoseconds(script_.acknowledge_after));
      control.send(wire::LeaveAck{}, kHandle);
      // COMMIT is read first, so that closing the socket causes no reset.
      static_cast<void>(lane->expect<wire::Commit>());
      lane.reset();
    }
  }
}

}  // namespace sluice::test
