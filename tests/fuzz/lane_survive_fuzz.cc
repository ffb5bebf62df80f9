// A session that survives losses, on a lane, driven by a script that the input spells: connections break, in
// the middle of frames too, and are made again, before or after the lane notices; views follow each other
// while results are under way; ranks leave; bytes are garbage or almost right. What the ranks must see is in
// surviving_ranks.h.
#include "tests/fuzz/surviving_ranks.h"

namespace sluice::fuzz {
namespace {

constexpr unsigned kMostActions = 64;

void act(SurvivingRanks& ranks, LaneBed& bed, Input& in) {
  const uint8_t what = in.u8();
  const uint32_t rank = (what >> 4) % ranks.count();
  switch (what & 15) {
    case 0: return ranks.connect(rank, false);
    case 1: return ranks.connect(rank, true);
    case 2: return ranks.contribute(rank);
    case 3:
      for (uint32_t r = 0; r < ranks.count(); ++r) ranks.contribute((rank + r) % ranks.count());
      return;
    case 4: return ranks.contribute(rank, 1 + in.take<uint16_t>());
    case 5: return ranks.next_view();
    case 6: return ranks.follow(rank);
    case 7:
      for (uint32_t r = 0; r < ranks.count(); ++r) ranks.follow((rank + r) % ranks.count());
      return;
    case 8: return ranks.cut(rank);
    case 9: return ranks.close_rank(rank);
    case 10: return ranks.drain(rank);
    case 11: return ranks.leave(rank);
    case 12: return ranks.send_garbage(rank, in.exactly(in.u8()));
    case 13: return ranks.send_altered(rank, in.u8(), in);
    case 14: bed.now += (1 + in.u8() % 16) * 200 * kMillisecond; return ranks.time_passed();
    default:
      for (uint32_t r = 0; r < ranks.count(); ++r) ranks.connect((rank + r) % ranks.count(), true);
      return;
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using namespace sluice::fuzz;
  constexpr uint32_t kRanks[] = {2, 3, 2, 3, 2, 3, 1, 9};
  Input in(data, size);
  const uint8_t shape = in.u8();
  const uint8_t seed = in.u8();
  LaneBed bed((shape & 32) != 0 ? 100 : 64 * kKiB);
  SurvivingRanks ranks(bed,
                       {.handle = 5,
                        .ranks = kRanks[shape & 7],
                        .slots = (shape & 128) != 0 ? 3u : 2u,
                        .slot_bytes = 8192,
                        .view_version = 0,
                        .view_hash = 0xcafe,
                        .payload_crc = (shape & 8) == 0,
                        .survives = true},
                       seed, (shape & 16) != 0);
  for (uint32_t r = 0; r < ranks.count(); ++r) ranks.connect(r, false);
  for (unsigned action = 0; action < kMostActions && !in.empty(); ++action) {
    act(ranks, bed, in);
    ranks.take_events();
  }
  ranks.recover();
  ranks.finish();
  bed.lane.reset();  // while the session is there
  return 0;
}
