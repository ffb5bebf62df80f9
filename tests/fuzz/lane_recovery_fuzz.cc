// Fuzzes a fault-tolerant session on a lane with a script from the input. Connections break, also within
// frames, and are replaced before or after the lane notices; views change while results are in transit; ranks
// leave; bytes are garbage or almost valid. fault_tolerant_ranks.h states what the ranks must observe.
#include "tests/fuzz/fault_tolerant_ranks.h"

namespace sluice::fuzz {
namespace {

constexpr unsigned kMaxActions = 64;

void act(FaultTolerantRanks& ranks, FuzzedLane& fuzzed_lane, Input& in) {
  const uint8_t choice = in.u8();
  const uint32_t rank = (choice >> 4) % ranks.count();
  switch (choice & 15) {
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
    case 14: fuzzed_lane.now += (1 + in.u8() % 16) * 200 * kMillisecond; return ranks.time_passed();
    default:
      for (uint32_t r = 0; r < ranks.count(); ++r) ranks.connect((rank + r) % ranks.count(), true);
      return;
  }
}

}  // namespace

void fuzz_one(Input in) {
  constexpr uint32_t kRanks[] = {2, 3, 2, 3, 2, 3, 1, 9};
  const uint8_t config = in.u8();
  const uint8_t seed = in.u8();
  FuzzedLane fuzzed_lane((config & 32) != 0 ? 100 : 64 * kKiB);
  FaultTolerantRanks ranks(fuzzed_lane,
                           {.handle = 5,
                            .ranks = kRanks[config & 7],
                            .slots = (config & 128) != 0 ? 3u : 2u,
                            .slot_bytes = 8192,
                            .view_version = 0,
                            .view_hash = 0xcafe,
                            .payload_crc = (config & 8) == 0,
                            .fault_tolerant = true},
                           seed, (config & 16) != 0);
  for (uint32_t r = 0; r < ranks.count(); ++r) ranks.connect(r, false);
  for (unsigned action = 0; action < kMaxActions && !in.empty(); ++action) {
    act(ranks, fuzzed_lane, in);
    ranks.process_events();
  }
  ranks.recover();
  ranks.finish();
  fuzzed_lane.lane.reset();  // while the session exists
}

}  // namespace sluice::fuzz
