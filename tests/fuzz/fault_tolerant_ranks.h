#pragma once

#include <optional>
#include <vector>

#include "tests/fuzz/fuzzed_lane.h"
#include "wire/messages.h"

namespace sluice::fuzz {

// FaultTolerantRanks is the ranks of a fault-tolerant session on a real lane, and their arbiter, as
// protocol.md section 11 defines them. The ranks resume, follow view changes, contribute again the chunks
// without a result, and contribute kept results. Whatever a script does to the connections, each result must
// be the sum of the contributions of all ranks and must arrive in order. In the end all ranks have all
// results.
class FaultTolerantRanks {
 public:
  FaultTolerantRanks(FuzzedLane& fuzzed_lane, const reducer::SessionPlan& plan, uint8_t seed,
                     bool small_buffers);

  [[nodiscard]] uint32_t count() const { return plan_.ranks; }

  // ---- actions of a script; each settles the lane ---- Opens a connection of this rank with COMMIT or
  // RESUME, and replaces its current connection. With `newest`, RESUME names the newest view.
  void connect(uint32_t rank, bool newest);
  // Sends the next contribution if there is credit and the rank has not left. The last `hold_back` bytes are
  // sent before the next frame.
  void contribute(uint32_t rank, size_t hold_back = 0);
  void next_view();
  void follow(uint32_t rank);  // changes to the newest view with VIEW_COMMIT
  void cut(uint32_t rank);     // closes the connection, with unread bytes
  void close_rank(uint32_t rank);
  void leave(uint32_t rank);  // only if the rank has all results
  void send_garbage(uint32_t rank, Bytes bytes);
  // Sends a frame that may be valid. From then on the session only has to stay within bounds.
  void send_altered(uint32_t rank, unsigned choice, Input& in);
  void time_passed();
  void drain(uint32_t rank);

  void process_events();
  // All ranks connect and follow the newest view, and all results arrive.
  void recover();
  // Ends the session and checks that the lane releases it. Call once, before the lane is destroyed.
  void finish();

 private:
  struct Rank {
    transport::tcp::Socket socket{};
    std::optional<StreamModel> incoming{};  // of the current connection
    Bytes held_back{};
    wire::ViewCommit view{};
    bool committed = false;  // COMMIT was sent once
    bool resumed = false;    // RESUME_ACK arrived on the current connection
    bool may_close = true;   // the lane may close the current connection
    bool left = false;       // in this view
    bool leave_sent = false;
    uint64_t next = 0;              // next contribution sequence in `view`
    uint64_t held = 0;              // number of results received in `view`
    uint64_t sent = 0;              // highest number of contributions sent in `view`
    uint64_t first_unfinished = 0;  // the first chunk without a result
    unsigned bad_frames = 0;        // number of bad frames sent
  };

  void settle();
  void close_socket(Rank& r);
  void send(uint32_t rank, const Bytes& frame, size_t hold_back = 0);
  void on_frame(Rank& r, const StreamModel::Step& step);
  void on_result(Rank& r, const StreamModel::Step& step);
  void check_payload(const StreamModel::Step& step) const;
  [[nodiscard]] bool may_contribute(const Rank& r) const;
  [[nodiscard]] FrameParts contribution(uint32_t rank) const;
  [[nodiscard]] FrameParts operation_data(uint32_t rank, uint64_t chunk) const;
  [[nodiscard]] Bytes result(uint64_t chunk) const;
  [[nodiscard]] FrameParts resume_frame(const Rank& r) const;
  void command(reducer::LaneCommand::Kind kind, uint32_t rank, int fd = -1);

  // A rank that sends more bad frames would be lost.
  static constexpr unsigned kMaxBadFrames = 15;
  static constexpr uint64_t kIncarnation = 5;

  FuzzedLane& lane_;
  const reducer::SessionPlan plan_;
  const uint8_t seed_;
  const bool small_buffers_;
  std::unique_ptr<reducer::LaneSession> session_;
  std::vector<Rank> ranks_;
  wire::ViewCommit newest_{};
  uint64_t chunks_ = 4;  // number of chunks so far
  bool left_ = false;    // a rank has left, so there are no more chunks
  bool altered_ = false;
  bool failed_ = false;
  bool ending_ = false;
  bool released_ = false;
};

}  // namespace sluice::fuzz
