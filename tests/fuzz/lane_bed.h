// A real lane over real sockets with a clock of the script's, and sessions on it whose every move is held
// against LaneModel.
#pragma once

#include <memory>
#include <vector>

#include "reducer/lane/lane.h"
#include "tests/fuzz/frame_script.h"
#include "tests/fuzz/lane_model.h"
#include "transport/tcp/socket.h"

namespace sluice::fuzz {

class LaneBed {
 public:
  explicit LaneBed(size_t fold_budget);
  // Turns the lane until nothing moves; that it comes to rest is checked.
  void settle();

  static constexpr Nanos kFrameTimeout = 1 * kSecond;
  Nanos now = 10 * kSecond;
  std::unique_ptr<reducer::Lane> lane;
};

class BedSession {
 public:
  // A client whose socket takes little in before the lane must wait for it, where `small_buffers`.
  BedSession(LaneBed& bed, const reducer::SessionPlan& plan, uint8_t seed, bool small_buffers);
  // Closes everything and checks that the lane lets go of the session. To be called before the bed is
  // destroyed, once.
  void finish();

  // ---- what a script does; each settles the lane ----
  void attach(uint32_t rank);
  void fail_to_attach(uint32_t rank);
  // Sends what is held back for this rank and `bytes`, all but the last `hold_back` bytes.
  void send(uint32_t rank, std::span<const std::byte> bytes, size_t hold_back = 0);
  void end_sending(uint32_t rank, bool unread);  // unread: without taking in first what the lane has for it
  void vanish(uint32_t rank);
  void rank_left(uint32_t rank);
  void end(bool with_abort);
  void close_now();
  void time_passed();  // after the bed's clock was moved, by 200 ms or more

  // A contribution that the ranks agree on, computed from its sequence; payload from the rank too.
  [[nodiscard]] FrameParts contribution(uint32_t rank, uint64_t sequence) const;
  [[nodiscard]] FrameParts commit(uint64_t incarnation) const;

  // ---- checks ----
  // Takes in what the lane has sent to this rank; every frame must be the one that the model expects.
  void drain(uint32_t rank);
  void drain_all();
  void take_event(const reducer::LaneEvent& event);
  // Nothing that the model says has happened is outstanding at the lane.
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
  void arrived(uint32_t rank, const StreamModel::Step& step);

  LaneBed& bed_;
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
