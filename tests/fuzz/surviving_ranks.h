// The ranks of a session that survives losses, on a lane over real sockets, and the arbiter they listen to,
// as PROTOCOL.md section 11 wants them: they resume, follow into views, contribute again what they lack the
// result of, and the result where they have it. Whatever a script does to their connections in between, a
// result that comes is the sum of what all ranks have for its chunk, comes in order, and in the end all have
// all of them.
#pragma once

#include <optional>
#include <vector>

#include "tests/fuzz/lane_bed.h"
#include "wire/messages.h"

namespace sluice::fuzz {

class SurvivingRanks {
 public:
  SurvivingRanks(LaneBed& bed, const reducer::SessionPlan& plan, uint8_t seed, bool small_buffers);

  [[nodiscard]] uint32_t count() const { return plan_.ranks; }

  // ---- what a script does; each settles the lane ----
  // A connection of this rank, COMMIT or RESUME on it; in the place of the one that it has. `newest`: RESUME
  // says the newest view.
  void connect(uint32_t rank, bool newest);
  // The next contribution, where there is credit and the rank has not left; the last `hold_back` bytes of it
  // come before whatever is sent next.
  void contribute(uint32_t rank, size_t hold_back = 0);
  void next_view();
  void follow(uint32_t rank);  // into the newest view, by VIEW_COMMIT
  void cut(uint32_t rank);     // the connection ends, with what is unread
  void close_rank(uint32_t rank);
  void leave(uint32_t rank);  // where it has all results that are agreed on
  void send_garbage(uint32_t rank, Bytes bytes);
  // Frames that may be right: what the session does from then on is nobody's promise but to stay in bounds.
  void send_altered(uint32_t rank, unsigned what, Input& in);
  void time_passed();
  void drain(uint32_t rank);

  void take_events();
  // Everybody connects and follows, and all results come.
  void recover();
  // Ends the session; the lane lets go of it. Before the bed is destroyed, once.
  void finish();

 private:
  struct Rank {
    transport::tcp::Socket socket{};
    std::optional<StreamModel> incoming{};  // of the present connection
    Bytes held_back{};
    wire::ViewCommit view{};
    bool committed = false;  // once
    bool resumed = false;    // the present connection, and RESUME_ACK came
    bool may_close = true;   // the lane has a reason to close the present connection
    bool left = false;       // in this view
    bool said_leave = false;
    uint64_t next = 0;              // sequence in `view`
    uint64_t held = 0;              // results in `view`
    uint64_t sent = 0;              // contributions in `view` that have left this rank at most
    uint64_t first_unfinished = 0;  // chunk
    unsigned bad_frames = 0;        // sent
  };

  void settle();
  void give_up(Rank& r);
  void send(uint32_t rank, const Bytes& frame, size_t hold_back = 0);
  void arrived(Rank& r, const StreamModel::Step& step);
  void result_arrived(Rank& r, const StreamModel::Step& step);
  [[nodiscard]] bool may_contribute(const Rank& r) const;
  [[nodiscard]] FrameParts contribution(uint32_t rank) const;
  [[nodiscard]] FrameParts draw(uint32_t rank, uint64_t chunk) const;
  [[nodiscard]] Bytes result(uint64_t chunk) const;
  [[nodiscard]] FrameParts resume_frame(const Rank& r) const;
  void command(reducer::LaneCommand::Kind kind, uint32_t rank, int fd = -1);

  // No rank breaks off over and over by bad frames: that loses it.
  static constexpr unsigned kMostBadFrames = 15;
  static constexpr uint64_t kIncarnation = 5;

  LaneBed& bed_;
  const reducer::SessionPlan plan_;
  const uint8_t seed_;
  const bool small_buffers_;
  std::unique_ptr<reducer::LaneSession> session_;
  std::vector<Rank> ranks_;
  wire::ViewCommit newest_{};
  uint64_t chunks_ = 4;  // agreed on so far
  bool left_ = false;    // a rank has: no more chunks
  bool tainted_ = false;
  bool failed_ = false;
  bool ending_ = false;
  bool released_ = false;
};

}  // namespace sluice::fuzz
