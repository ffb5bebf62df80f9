#include "wire/placement.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/assert.h"
#include "wire/view.h"

namespace sluice::wire {
namespace {

// How far share * period may be from a whole number to count as one: rounding errors are a thousand times
// smaller, and an error of this size moves no chunk in a million.
constexpr double kWhole = 1e-7;

uint32_t rounded(double turns) {
  const auto whole = static_cast<uint32_t>(turns);
  return turns - whole < 0.5 ? whole : whole + 1;
}

bool is_whole(double turns) {
  const double off = turns - rounded(turns);
  return off < kWhole && off > -kWhole;
}

// Reducers with equal quotas. They take the turns of the group one after the other, so that each has between
// the rounded down and the rounded up part of the group's turns in any run.
struct Group {
  uint32_t quota = 0;
  std::vector<uint32_t> members;
  uint32_t turns = 0;  // assigned so far
};

std::vector<Group> groups_of(const std::vector<uint32_t>& quotas) {
  std::vector<Group> groups;
  for (uint32_t i = 0; i < quotas.size(); ++i) {
    if (quotas[i] == 0) continue;
    auto group = std::ranges::find(groups, quotas[i], &Group::quota);
    if (group == groups.end()) group = groups.insert(groups.end(), {.quota = quotas[i], .members = {}});
    group->members.push_back(i);
  }
  return groups;
}

uint64_t sum_of(const std::vector<uint32_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

}  // namespace

std::vector<uint32_t> turn_quotas(const std::vector<double>& shares, uint32_t max_period) {
  SLUICE_ASSERT(max_period >= 2 * shares.size());
  uint32_t period = 1;
  const auto divides = [&](double share) { return is_whole(share * period); };
  while (period <= max_period && !std::ranges::all_of(shares, divides)) ++period;
  // Each of the quotas may be rounded up by half a turn.
  if (period > max_period) period = max_period - static_cast<uint32_t>(shares.size()) / 2;
  std::vector<uint32_t> quotas;
  for (const double share : shares) quotas.push_back(rounded(share * period));
  return quotas;
}

// R. Tijdeman, "The chairman assignment problem" (1980). With G groups, d = 2 G - 2 and a group's share g /
// P: turn k of a group may be assigned to the first T turns where T g / P >= k + 1 / d, and has to be where
// T g / P > k + 1 - 1 / d. The earliest deadline first meets all of them, so that no prefix is further than
// 1 - 1 / d from a share. For two groups this is the nearest whole number.
std::vector<uint32_t> turn_sequence(const std::vector<uint32_t>& quotas) {
  const uint64_t period = sum_of(quotas);
  SLUICE_ASSERT(period > 0 && period <= kMaxPlacement);
  std::vector<Group> groups = groups_of(quotas);
  const uint64_t d = std::max<uint64_t>(1, 2 * groups.size() - 2);
  // (prefix length, group): the release of the next turn of groups that wait for it, and its deadline for
  // those that do not.
  using Queue = std::priority_queue<std::pair<uint64_t, size_t>, std::vector<std::pair<uint64_t, size_t>>,
                                    std::greater<>>;
  Queue waiting;
  Queue ready;
  const auto group_quota = [&](size_t g) { return uint64_t{groups[g].quota} * groups[g].members.size(); };
  const auto wait = [&](size_t g) {
    waiting.emplace(div_ceil((groups[g].turns * d + 1) * period, group_quota(g) * d), g);
  };
  for (size_t g = 0; g < groups.size(); ++g) wait(g);
  std::vector<uint32_t> sequence;
  sequence.reserve(period);
  for (uint64_t length = 1; length <= period; ++length) {
    for (; !waiting.empty() && waiting.top().first <= length; waiting.pop()) {
      const size_t g = waiting.top().second;
      ready.emplace((groups[g].turns * d + d - 1) * period / (group_quota(g) * d) + 1, g);
    }
    SLUICE_ASSERT(!ready.empty() && ready.top().first >= length);
    const size_t g = ready.top().second;
    ready.pop();
    Group& group = groups[g];
    sequence.push_back(group.members[group.turns++ % group.members.size()]);
    wait(g);
  }
  return sequence;
}

std::vector<uint32_t> weighted_round_robin(const std::vector<uint32_t>& weights) {
  const uint64_t turns = sum_of(weights);
  SLUICE_ASSERT(turns > 0 && turns <= kMaxPlacement);
  std::vector<int64_t> credit(weights.size(), 0);
  std::vector<uint32_t> sequence;
  sequence.reserve(turns);
  for (uint64_t t = 0; t < turns; ++t) {
    size_t best = weights.size();
    for (size_t i = 0; i < weights.size(); ++i) {
      credit[i] += weights[i];
      if (weights[i] > 0 && (best == weights.size() || credit[i] > credit[best])) best = i;
    }
    credit[best] -= static_cast<int64_t>(turns);
    sequence.push_back(static_cast<uint32_t>(best));
  }
  return sequence;
}

}  // namespace sluice::wire
