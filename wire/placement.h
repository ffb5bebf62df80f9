// Functions that order the turns of reducers for placement_table(): which reducer sums chunk 0, 1, 2, ...
//
// Reducers take turns by quotas: whole numbers of turns in one period, which then repeats. Guarantees of
// turn_sequence(), where P is the sum of the quotas and a reducer's share is its quota / P:
//   * Every prefix, over any number of periods, is less than one chunk away from each reducer's share.
//   * Every run of consecutive chunks is therefore less than two chunks away from it.
//   * With at most two different quotas that are not 0 (a pool of equal reducers and equal co-located ones),
//     every run is at most one chunk away. For three and more, no order can promise that in general: shares
//     of 1/2, 1/3 and 1/6 have none.
//   * A run of L chunks that all go to one reducer of share s has L < 2 / (1 - s).
//
// Pure functions, deterministic to the last bit: thread-safe, no errors. Cost: P log(number of reducers).
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::wire {

// Quotas for the shares, which are at least 0 and add up to 1; a share of 0 gets quota 0. The sum is the
// least period, up to `max_period`, in which all shares are whole numbers of turns. Where there is none, the
// sum is close to max_period, and a quota is within half a turn of its share of max_period - shares.size() /
// 2 turns. Equal shares get equal quotas. max_period must be at least twice the number of shares.
[[nodiscard]] std::vector<uint32_t> turn_quotas(const std::vector<double>& shares, uint32_t max_period);

// One period: entry t is the index of the reducer with turn t. The sum of the quotas must be 1 to 65536.
[[nodiscard]] std::vector<uint32_t> turn_sequence(const std::vector<uint32_t>& quotas);

// The same by smooth weighted round robin, the order of views without rates. Runs are less even than those of
// turn_sequence() when weights differ. The sum of the weights must be 1 to 65536.
[[nodiscard]] std::vector<uint32_t> weighted_round_robin(const std::vector<uint32_t>& weights);

}  // namespace sluice::wire
