// Messages of fault tolerance: resuming connections and changing the view (protocol.md section 11).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::wire {

// First frame of a lane connection that replaces a broken one, or that belongs to a new view.
struct Resume {
  static constexpr FrameType kType = FrameType::kResume;
  static constexpr bool kMayGrow = false;
  uint64_t incarnation = 0;
  uint16_t version = 0;  // of the rank's view
  uint64_t view_hash = 0;
  uint64_t base_chunk = 0;
  uint64_t results_held = 0;  // next RESULT sequence expected on this lane in this view
  static void visit(auto& m, auto& v) {
    v(m.incarnation), v(m.version), v(m.view_hash), v(m.base_chunk), v(m.results_held);
  }
};

// Accepts a RESUME. Each side then sends again the frames that the other side lacks.
struct ResumeAck {
  static constexpr FrameType kType = FrameType::kResumeAck;
  static constexpr bool kMayGrow = false;
  uint64_t contributions_held = 0;  // next CONTRIBUTION sequence expected
  static void visit(auto& m, auto& v) { v(m.contributions_held); }
};

// A rank reports that it lost a reducer, or that the reducer drains or is no longer listed.
struct Suspect {
  static constexpr FrameType kType = FrameType::kSuspect;
  static constexpr bool kMayGrow = false;
  uint64_t reducer = 0;
  Errc code = Errc::kReducerLost;
  static void visit(auto& m, auto& v) { v(m.reducer), v(m.code); }
};

// The part of a MembershipHistory (wire/membership_history.h) that is not the first view.
struct MembershipChange {
  std::vector<uint64_t> removed{};    // ascending
  std::vector<uint64_t> added{};      // ascending
  std::vector<uint64_t> confirmed{};  // ascending; the subset of `added` that every rank has joined
  std::string addresses{};            // of `added`, "host:port*weight", comma-separated; "" if unknown
  static void visit(auto& m, auto& v) {
    v.list(m.removed, kMaxViewChange), v.list(m.added, kMaxViewChange), v.list(m.confirmed, kMaxViewChange);
    v.text(m.addresses, kMaxAddresses);
  }
};

// The arbiter proposes a view to every rank.
struct ViewQuery : MembershipChange {
  static constexpr FrameType kType = FrameType::kViewQuery;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  static void visit(auto& m, auto& v) { v(m.version), MembershipChange::visit(m, v); }
};

// Tells a peer the membership changes that the sender knows.
struct ViewKnown : MembershipChange {
  static constexpr FrameType kType = FrameType::kViewKnown;
  static constexpr bool kMayGrow = false;
};

// Changed link rates that the sender knows: a part of its MembershipHistory. The arbiter sends them before
// each VIEW_QUERY, to which they belong; ranks send them before VIEW_KNOWN. Entry i of the lists belongs
// together. A history with more than kMaxRateChanges of them is sent as several messages.
struct RateChanges {
  static constexpr FrameType kType = FrameType::kRateChanges;
  static constexpr bool kMayGrow = false;
  std::vector<uint32_t> ranks{};      // strictly ascending
  std::vector<uint16_t> sequences{};  // counts the changes of that rank's rate
  std::vector<uint64_t> rates{};      // bits/s
  static void visit(auto& m, auto& v) {
    v.list(m.ranks, kMaxRateChanges), v.list(m.sequences, kMaxRateChanges), v.list(m.rates, kMaxRateChanges);
  }
};

// A rank accepts the proposed view and stops sending in the old one.
struct ViewAnswer {
  static constexpr FrameType kType = FrameType::kViewAnswer;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  uint64_t view_hash = 0;
  uint64_t first_unfinished_chunk = 0;
  static void visit(auto& m, auto& v) { v(m.version), v(m.view_hash), v(m.first_unfinished_chunk); }
};

// The arbiter commits the view. Every lane restarts at base_chunk.
struct ViewCommit {
  static constexpr FrameType kType = FrameType::kViewCommit;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  uint64_t view_hash = 0;
  uint64_t base_chunk = 0;
  static void visit(auto& m, auto& v) { v(m.version), v(m.view_hash), v(m.base_chunk); }
};

// The reducer is about to shut down; ranks move to the other reducers.
struct DrainNotice {
  static constexpr FrameType kType = FrameType::kDrainNotice;
  static constexpr bool kMayGrow = true;
  uint32_t deadline_ms = 0;
  static void visit(auto& m, auto& v) { v(m.deadline_ms); }
};

}  // namespace sluice::wire
