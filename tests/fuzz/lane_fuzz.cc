// Fuzzes a session on a lane with a script from the input: valid, altered and raw bytes, split at any point,
// on any of its connections; ranks that attach late, leave, close their connection or read slowly; time.
// After each action, frames, sums, reasons and events are compared with LaneModel. A second session of the
// same lane must remain unaffected.
#include "core/assert.h"
#include "tests/fuzz/fuzzed_lane.h"

namespace sluice::fuzz {
namespace {

constexpr uint64_t kIncarnation = 77;
constexpr unsigned kMaxActions = 48;

// The parameters of a script, from the first bytes of the input.
struct ScriptConfig {
  uint32_t ranks;
  bool payload_crc;
  bool small_buffers;
  bool small_folds;
  bool joined;  // every rank has attached and committed
  uint32_t slots;
  uint32_t slot_bytes;
  uint8_t seed;

  explicit ScriptConfig(Input& in) {
    constexpr uint32_t kRanks[] = {2, 3, 2, 3, 2, 3, 1, 9};
    const uint8_t a = in.u8();
    const uint8_t b = in.u8();
    ranks = kRanks[a & 7];
    payload_crc = (a & 8) == 0;
    small_buffers = (a & 16) != 0;
    small_folds = (a & 32) != 0;
    joined = (a & 64) == 0;
    slots = (a & 128) != 0 ? 3 : 2;
    slot_bytes = (b & 1) != 0 ? 4096 : 1024;
    seed = b;
  }
  [[nodiscard]] reducer::SessionPlan plan() const {
    return {.handle = 5,
            .ranks = ranks,
            .slots = slots,
            .slot_bytes = slot_bytes,
            .view_version = 3,
            .view_hash = 0xcafef00d,
            .payload_crc = payload_crc};
  }
};

reducer::SessionPlan healthy_plan() {
  return {.handle = 6, .ranks = 2, .slots = 2, .slot_bytes = 512, .view_version = 0, .view_hash = 1};
}

class Script {
 public:
  Script(Input& in, const ScriptConfig& config)
      : in_(in),
        lane_(config.small_folds ? 100 : 64 * kKiB),
        session_(lane_, config.plan(), config.seed, config.small_buffers),
        healthy_(lane_, healthy_plan(), 1, false) {
    join(healthy_);
    if (config.joined) join(session_);
  }

  void run() {
    for (unsigned action = 1; action <= kMaxActions && !in_.empty(); ++action) {
      act();
      if (action % 4 == 0) check_healthy_session();
      check_events();
    }
    session_.finish();
    check_healthy_session();
    SLUICE_ASSERT(lane_.lane->context().endpoint_count() == healthy_.ranks());
    SLUICE_ASSERT(lane_.lane->session_count() == 1);
    SLUICE_ASSERT(lane_.lane->counters().chunks.get() ==
                  session_.model().results() + healthy_.model().results());
    lane_.lane.reset();  // while the sessions exist
  }

 private:
  static void join(FuzzedSession& s) {
    for (uint32_t r = 0; r < s.ranks(); ++r) {
      s.attach(r);
      s.send(r, encode(s.commit(kIncarnation)));
    }
  }

  void check_healthy_session() {
    const uint64_t sequence = healthy_.model().results();
    for (uint32_t r = 0; r < healthy_.ranks(); ++r)
      healthy_.send(r, encode(healthy_.contribution(r, sequence)));
    SLUICE_ASSERT(healthy_.model().results() == sequence + 1);
    healthy_.drain_all();
    SLUICE_ASSERT(!healthy_.model().failure() && healthy_.model().connection(0).open() &&
                  healthy_.model().connection(1).open());
  }

  void check_events() {
    for (reducer::LaneEvent e; lane_.lane->poll_event(e);) {
      (e.session == &healthy_.session() ? healthy_ : session_).on_event(e);
    }
    session_.check();
    healthy_.check();
  }

  Bytes next_contribution(uint32_t rank, uint64_t ahead = 0) {
    return encode(session_.contribution(rank, session_.model().connection(rank).next + ahead));
  }

  void act() {
    const uint8_t choice = in_.u8();
    const uint32_t rank = (choice >> 4) % session_.ranks();
    LaneModel::Connection& connection = session_.model().connection(rank);
    switch (choice & 15) {
      case 0: return attach(rank);
      case 1: return session_.send(rank, encode(session_.commit(kIncarnation)));
      case 2: return session_.send(rank, next_contribution(rank));
      case 3:
        for (uint32_t r = 0; r < session_.ranks(); ++r) {
          const uint32_t turn = (rank + r) % session_.ranks();
          session_.send(turn, next_contribution(turn));
        }
        return;
      case 4: return session_.send(rank, encode_altered(session_.contribution(rank, connection.next), in_));
      case 5: return session_.send(rank, in_.at_most(in_.u8()));
      case 6: return session_.send(rank, control_frame());
      case 7: {
        const Bytes frame = next_contribution(rank);
        return session_.send(rank, frame, in_.take<uint16_t>() % frame.size());
      }
      case 8:
        lane_.now += (1 + in_.u8() % 64) * 200 * kMillisecond;
        session_.time_passed();
        return;
      case 9: return session_.drain(rank);
      case 10: {
        const uint32_t how = in_.below(3);
        return how == 1 ? session_.close_connection(rank) : session_.shutdown_send(rank, how == 2);
      }
      case 11: return session_.model().ending() ? void() : session_.rank_left(rank);
      case 12: return end();
      case 13: return session_.send(rank, encode_altered(session_.commit(in_.u8()), in_));
      case 14: return session_.send(rank, unusual_contribution(rank));
      default: {
        Bytes two = next_contribution(rank);
        const Bytes second = next_contribution(rank, 1);
        two.insert(two.end(), second.begin(), second.end());
        return session_.send(rank, two);
      }
    }
  }

  void attach(uint32_t rank) {
    const LaneModel::Connection& connection = session_.model().connection(rank);
    if (connection.attached || !connection.closed.empty() || session_.model().ending()) return;
    if (in_.u8() == 0xff) return session_.attach_invalid_socket(rank);
    session_.attach(rank);
  }

  void end() {
    if (session_.model().ending()) return session_.close_now();
    session_.end(in_.below(2) != 0);
  }

  Bytes control_frame() {
    FrameParts parts;
    parts.header.type = static_cast<wire::FrameType>(in_.u8());
    parts.header.flags = wire::kFlagPayloadCrc;
    parts.header.session = 5;
    parts.payload = in_.exactly(in_.u8() % 64);
    return encode(std::move(parts));
  }

  // A valid contribution that Sluice itself never sends.
  Bytes unusual_contribution(uint32_t rank) {
    FrameParts parts = session_.contribution(rank, session_.model().connection(rank).next);
    const uint8_t variant = in_.u8();
    if ((variant & 1) != 0) parts.header.flags |= wire::kFlagResent;
    if ((variant & 2) != 0) parts.header.flags &= static_cast<uint16_t>(~wire::kFlagPayloadCrc);
    if ((variant & 4) != 0)  // without OP_INFO
      parts.extensions.erase(parts.extensions.begin(), parts.extensions.begin() + wire::kSmallExtensionBytes);
    if ((variant & 8) != 0) parts.extensions.resize(parts.extensions.size() + 8);  // type 0, optional
    if ((variant & 16) != 0) parts.header.payload_crc = in_.take<uint32_t>();
    if ((variant & 32) != 0) parts.header.flags ^= wire::kFlagAcceptsSparse;
    if ((variant & 64) != 0) parts.header.flags |= wire::kFlagLosses;
    return encode(std::move(parts));
  }

  Input& in_;
  FuzzedLane lane_;
  FuzzedSession session_;
  FuzzedSession healthy_;
};

}  // namespace

void fuzz_one(Input in) {
  const ScriptConfig config(in);
  Script(in, config).run();
}

}  // namespace sluice::fuzz
