// A session on a lane, driven by a script that the input spells: well-formed, altered and raw bytes, cut
// anywhere, on any of its connections; ranks that come late, leave, vanish, or read slowly; time. Held
// against LaneModel after every action: frames, sums, reasons, events. Beside it a second session of the same
// lane goes on as if nothing were.
#include "core/assert.h"
#include "tests/fuzz/lane_bed.h"

namespace sluice::fuzz {
namespace {

constexpr uint64_t kIncarnation = 77;
constexpr unsigned kMostActions = 48;

// What the first bytes of an input choose.
struct Shape {
  uint32_t ranks;
  bool payload_crc;
  bool small_buffers;
  bool small_folds;
  bool joined;  // every rank is there and has committed
  uint32_t slots;
  uint32_t slot_bytes;
  uint8_t seed;

  explicit Shape(Input& in) {
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
  Script(Input& in, const Shape& shape)
      : in_(in),
        bed_(shape.small_folds ? 100 : 64 * kKiB),
        session_(bed_, shape.plan(), shape.seed, shape.small_buffers),
        healthy_(bed_, healthy_plan(), 1, false) {
    join(healthy_);
    if (shape.joined) join(session_);
  }

  void run() {
    for (unsigned action = 1; action <= kMostActions && !in_.empty(); ++action) {
      act();
      if (action % 4 == 0) healthy_works();
      look();
    }
    session_.finish();
    healthy_works();
    SLUICE_ASSERT(bed_.lane->context().endpoint_count() == healthy_.ranks());
    SLUICE_ASSERT(bed_.lane->session_count() == 1);
    SLUICE_ASSERT(bed_.lane->counters().chunks.get() ==
                  session_.model().results() + healthy_.model().results());
    bed_.lane.reset();  // while the sessions are there
  }

 private:
  static void join(BedSession& s) {
    for (uint32_t r = 0; r < s.ranks(); ++r) {
      s.attach(r);
      s.send(r, encode(s.commit(kIncarnation)));
    }
  }

  void healthy_works() {
    const uint64_t sequence = healthy_.model().results();
    for (uint32_t r = 0; r < healthy_.ranks(); ++r)
      healthy_.send(r, encode(healthy_.contribution(r, sequence)));
    SLUICE_ASSERT(healthy_.model().results() == sequence + 1);
    healthy_.drain_all();
    SLUICE_ASSERT(!healthy_.model().failure() && healthy_.model().link(0).open() &&
                  healthy_.model().link(1).open());
  }

  void look() {
    for (reducer::LaneEvent e; bed_.lane->poll_event(e);) {
      (e.session == &healthy_.session() ? healthy_ : session_).take_event(e);
    }
    session_.check();
    healthy_.check();
  }

  Bytes next_contribution(uint32_t rank, uint64_t ahead = 0) {
    return encode(session_.contribution(rank, session_.model().link(rank).next + ahead));
  }

  void act() {
    const uint8_t what = in_.u8();
    const uint32_t rank = (what >> 4) % session_.ranks();
    LaneModel::Link& link = session_.model().link(rank);
    switch (what & 15) {
      case 0: return attach(rank);
      case 1: return session_.send(rank, encode(session_.commit(kIncarnation)));
      case 2: return session_.send(rank, next_contribution(rank));
      case 3:
        for (uint32_t r = 0; r < session_.ranks(); ++r) {
          const uint32_t turn = (rank + r) % session_.ranks();
          session_.send(turn, next_contribution(turn));
        }
        return;
      case 4: return session_.send(rank, encode_altered(session_.contribution(rank, link.next), in_));
      case 5: return session_.send(rank, in_.some(in_.u8()));
      case 6: return session_.send(rank, control_frame());
      case 7: {
        const Bytes frame = next_contribution(rank);
        return session_.send(rank, frame, in_.take<uint16_t>() % frame.size());
      }
      case 8:
        bed_.now += (1 + in_.u8() % 64) * 200 * kMillisecond;
        session_.time_passed();
        return;
      case 9: return session_.drain(rank);
      case 10: {
        const uint32_t how = in_.below(3);
        return how == 1 ? session_.vanish(rank) : session_.end_sending(rank, how == 2);
      }
      case 11: return session_.model().ending() ? void() : session_.rank_left(rank);
      case 12: return end();
      case 13: return session_.send(rank, encode_altered(session_.commit(in_.u8()), in_));
      case 14: return session_.send(rank, odd_contribution(rank));
      default: {
        Bytes two = next_contribution(rank);
        const Bytes second = next_contribution(rank, 1);
        two.insert(two.end(), second.begin(), second.end());
        return session_.send(rank, two);
      }
    }
  }

  void attach(uint32_t rank) {
    const LaneModel::Link& link = session_.model().link(rank);
    if (link.attached || !link.closed.empty() || session_.model().ending()) return;
    if (in_.u8() == 0xff) return session_.fail_to_attach(rank);
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

  // Allowed, though no program of ours sends it.
  Bytes odd_contribution(uint32_t rank) {
    FrameParts parts = session_.contribution(rank, session_.model().link(rank).next);
    const uint8_t odd = in_.u8();
    if ((odd & 1) != 0) parts.header.flags |= wire::kFlagResent;
    if ((odd & 2) != 0) parts.header.flags &= static_cast<uint16_t>(~wire::kFlagPayloadCrc);
    if ((odd & 4) != 0) parts.extensions.clear();
    if ((odd & 8) != 0) parts.extensions.resize(parts.extensions.size() + 8);  // type 0, optional
    if ((odd & 16) != 0) parts.header.payload_crc = in_.take<uint32_t>();
    return encode(std::move(parts));
  }

  Input& in_;
  LaneBed bed_;
  BedSession session_;
  BedSession healthy_;
};

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Input in(data, size);
  const sluice::fuzz::Shape shape(in);
  sluice::fuzz::Script(in, shape).run();
  return 0;
}
