#pragma once

#include <array>
#include <memory>
#include <vector>

#include "reducer/lane/lane.h"
#include "tests/fuzz/frame_script.h"
#include "tests/fuzz/lane_model.h"
#include "transport/tcp/socket.h"

namespace sluice::fuzz {

// A connected pair of sockets, the second for the lane. With `small_buffers` it holds few bytes.
[[nodiscard]] std::array<int, 2> connected_sockets(bool small_buffers);

// FuzzedLane is a real lane with real sockets and a clock that the script controls.
class FuzzedLane {
 public:
  explicit FuzzedLane(size_t fold_budget);
  // Runs the lane until it is idle. Fails if it never is.
  void settle();

  static constexpr Nanos kFrameTimeout = 1 * kSecond;
  Nanos now = 10 * kSecond;
  std::unique_ptr<reducer::Lane> lane;
};

// FuzzedSession is a session on a FuzzedLane. It compares every action with LaneModel.
class FuzzedSession {
 public:
  // With `small_buffers` the sockets hold few bytes, so that the lane must wait for the clients.
  FuzzedSession(FuzzedLane& fuzzed_lane, const reducer::SessionPlan& plan, uint8_t seed, bool small_buffers);
  // Closes all connections and checks that the lane releases the session. Call once, before the lane is
  // destroyed.
  void finish();

  // ---- actions of a script; each settles the lane ----
  void attach(uint32_t rank);
  void attach_invalid_socket(uint32_t rank);
  // Sends the bytes held back for this rank and `bytes`, except for the last `hold_back` bytes.
  void send(uint32_t rank, std::span<const std::byte> bytes, size_t hold_back = 0);
  void shutdown_send(uint32_t rank, bool unread);  // unread: without reading the frames of the lane first
  void close_connection(uint32_t rank);
  void rank_left(uint32_t rank);
  void end(bool with_abort);
  void close_now();
  void time_passed();  // call after advancing the clock by 200 ms or more

  // A contribution that all ranks agree on. Its sequence determines the fields, its sequence and rank the
  // payload.
  [[nodiscard]] FrameParts contribution(uint32_t rank, uint64_t sequence) const;
  [[nodiscard]] FrameParts commit(uint64_t incarnation) const {
    return control_frame(wire::Commit{.incarnation = incarnation}, plan_.handle);
  }

  // ---- checks ----
  // Reads all frames for this rank. Each frame must be the one that the model expects.
  void drain(uint32_t rank);
  void drain_all();
  void on_event(const reducer::LaneEvent& event);
  // The lane has reported everything that has happened according to the model.
  void check() const;

  [[nodiscard]] LaneModel& model() { return model_; }
  [[nodiscard]] const reducer::LaneSession& session() const { return *session_; }
  [[nodiscard]] uint32_t ranks() const { return plan_.ranks; }

 private:
  struct Client {
    Client() : incoming(wire::kMaxPayload) {}
    transport::tcp::Socket socket;
    StreamModel incoming;
    Bytes held_back;
    bool end_seen = false;
    bool abort_seen = false;
    bool close_reported = false;
  };

  void command(reducer::LaneCommand command);
  void settle_and_check();
  void on_frame(uint32_t rank, const StreamModel::Step& step);

  FuzzedLane& lane_;
  const reducer::SessionPlan plan_;
  const uint8_t seed_;
  const bool small_buffers_;
  std::unique_ptr<reducer::LaneSession> session_;
  LaneModel model_;
  std::vector<Client> clients_;
  Bytes abort_body_;
  bool failure_reported_ = false;
  bool released_ = false;
};

}  // namespace sluice::fuzz
