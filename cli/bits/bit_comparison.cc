#include "cli/bits/bit_comparison.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

namespace sluice::cli {
namespace {

using engine::BitOperation;
using engine::ResultState;

bool has_same_result_everywhere(wire::Kind kind) noexcept {
  return kind != wire::Kind::kReduceScatter && kind != wire::Kind::kReduce;
}

bool is_same_call(const BitOperation& a, const BitOperation& b) noexcept {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.count == b.count;
}

bool is_hashed(const std::optional<BitOperation>& operation) noexcept {
  return operation && operation->state == ResultState::kHashed;
}

// Equal calls with equal results, as far as the results can be compared.
bool is_equal(const BitOperation& a, const BitOperation& b) noexcept {
  return is_same_call(a, b) && a.state == b.state && a.crc == b.crc;
}

std::optional<BitOperation> operation_at(const OperationCursor& cursor, size_t record) {
  const RecordedOperation* const recorded = cursor.at(record);
  return recorded == nullptr ? std::nullopt : std::optional(recorded->operation);
}

// Groups what the ranks have of the current operation by `is_same`, the largest group first.
template <typename Same>
std::vector<RankGroup> group_ranks(const RecordedSession& session, const OperationCursor& cursor,
                                   Same is_same) {
  std::vector<RankGroup> groups;
  for (size_t i = 0; i < session.records.size(); ++i) {
    const std::optional<BitOperation> operation = operation_at(cursor, i);
    const auto group = std::ranges::find_if(groups, [&](const RankGroup& g) {
      if (!operation || !g.operation) return !operation && !g.operation;
      return is_same(*operation, *g.operation);
    });
    if (group == groups.end()) {
      groups.push_back({.operation = operation, .ranks = {session.records[i].rank}});
    } else {
      group->ranks.push_back(session.records[i].rank);
    }
  }
  std::ranges::stable_sort(groups, std::greater(), [](const RankGroup& g) { return g.ranks.size(); });
  return groups;
}

bool has_majority_of(const std::vector<RankGroup>& groups) noexcept {
  size_t ranks = 0;
  for (const RankGroup& g : groups) ranks += g.ranks.size();
  return !groups.empty() && 2 * groups.front().ranks.size() > ranks;
}

// The ranks' results by their hash. Ranks without one are left out.
std::vector<RankGroup> group_results(const RecordedSession& session, const OperationCursor& cursor) {
  std::vector<RankGroup> groups = group_ranks(session, cursor, is_equal);
  std::erase_if(groups, [](const RankGroup& g) { return !is_hashed(g.operation); });
  return groups;
}

uint64_t end_of(const BitRecord& record) noexcept {
  return record.operations.empty() ? 0 : record.operations.back().operation.number + 1;
}

uint64_t end_of(const RecordedSession& session) noexcept {
  uint64_t end = 0;
  for (const BitRecord& r : session.records) end = std::max(end, end_of(r));
  return end;
}

// The running hash of the operations below `end`, if it is the same in all records.
std::optional<uint64_t> running_hash(const RecordedSession& session, uint64_t end) {
  std::optional<uint64_t> out;
  for (const BitRecord& r : session.records) {
    const auto after = std::ranges::lower_bound(
        r.operations, end, {}, [](const RecordedOperation& o) { return o.operation.number; });
    if (after == r.operations.begin()) return std::nullopt;
    const uint64_t running = std::prev(after)->running;
    if (out.value_or(running) != running) return std::nullopt;
    out = running;
  }
  return out;
}

void note_difference(RankComparison& out, uint64_t number, std::vector<RankGroup> groups, size_t most) {
  ++out.different;
  if (has_majority_of(groups)) {
    for (size_t i = 1; i < groups.size(); ++i) {
      for (const uint32_t rank : groups[i].ranks) ++out.wrong[rank];
    }
  }
  if (out.differences.size() < most)
    out.differences.push_back({.number = number, .groups = std::move(groups)});
}

// The call and the result that most ranks have.
std::optional<BitOperation> majority_of(const RecordedSession& session, const OperationCursor& cursor) {
  const std::vector<RankGroup> groups = group_results(session, cursor);
  return has_majority_of(groups) ? groups.front().operation : std::nullopt;
}

// Any record of the current operation.
std::optional<BitOperation> any_of(const RecordedSession& session, const OperationCursor& cursor) {
  for (size_t i = 0; i < session.records.size(); ++i) {
    if (auto operation = operation_at(cursor, i)) return operation;
  }
  return std::nullopt;
}

// Compares the current operation rank by rank. Returns false when no rank has a result in both runs.
bool compare_same_ranks(const RecordedSession& expected, const OperationCursor& at,
                        const RecordedSession& found, const OperationCursor& found_at,
                        std::vector<uint32_t>& different) {
  bool has_compared = false;
  for (size_t i = 0, j = 0; i < expected.records.size() && j < found.records.size();) {
    const uint32_t rank = expected.records[i].rank;
    const uint32_t other = found.records[j].rank;
    if (rank == other) {
      const auto a = operation_at(at, i);
      const auto b = operation_at(found_at, j);
      if (is_hashed(a) && is_hashed(b)) {
        has_compared = true;
        if (!is_equal(*a, *b)) different.push_back(rank);
      }
    }
    i += rank <= other ? 1 : 0;
    j += other <= rank ? 1 : 0;
  }
  return has_compared;
}

}  // namespace

bool OperationDifference::has_majority() const noexcept {
  return has_majority_of(groups);
}

RankComparison compare_ranks(const RecordedSession& session, size_t most) {
  RankComparison out;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  for (const BitRecord& r : session.records) end = std::min(end, end_of(r));
  OperationCursor cursor(session);
  for (; cursor.number() && *cursor.number() < end; cursor.next()) {
    ++out.operations;
    std::vector<RankGroup> calls = group_ranks(session, cursor, is_same_call);
    if (calls.size() > 1) {
      ++out.compared;
      note_difference(out, *cursor.number(), std::move(calls), most);
      continue;
    }
    if (!has_same_result_everywhere(calls.front().operation->kind)) {
      ++out.own_results;
      continue;
    }
    std::vector<RankGroup> results = group_results(session, cursor);
    if (results.empty() || (results.size() == 1 && results.front().ranks.size() == 1)) {
      out.not_hashed += session.records.size() > 1 ? 1 : 0;
      continue;
    }
    ++out.compared;
    if (results.size() > 1) note_difference(out, *cursor.number(), std::move(results), most);
  }
  out.running = running_hash(session, end);
  return out;
}

SessionComparison compare_sessions(const RecordedSession& expected, const RecordedSession& found) {
  SessionComparison out;
  out.expected_end = end_of(expected);
  out.found_end = end_of(found);
  const uint64_t end = std::min(out.expected_end, out.found_end);
  OperationCursor at(expected);
  OperationCursor found_at(found);
  for (;;) {
    // Both cursors stand at operations of the same number, or one of them has none of the lower number.
    const uint64_t number = std::min(at.number().value_or(end), found_at.number().value_or(end));
    if (number >= end) break;
    const auto call = at.number() == number ? any_of(expected, at) : std::nullopt;
    const auto found_call = found_at.number() == number ? any_of(found, found_at) : std::nullopt;
    RunDifference difference{.number = number, .expected = call, .found = found_call, .ranks = {}};
    bool has_compared = true;
    bool is_different = !call || !found_call || !is_same_call(*call, *found_call);
    if (!is_different) {
      const auto a = majority_of(expected, at);
      const auto b = majority_of(found, found_at);
      if (has_same_result_everywhere(call->kind) && a && b) {
        is_different = !is_equal(*a, *b);
      } else {
        has_compared = compare_same_ranks(expected, at, found, found_at, difference.ranks);
        is_different = !difference.ranks.empty();
      }
    }
    out.compared += has_compared ? 1 : 0;
    out.different += is_different ? 1 : 0;
    if (is_different && !out.first) out.first = std::move(difference);
    if (call) at.next();
    if (found_call) found_at.next();
  }
  return out;
}

}  // namespace sluice::cli
