// Compares the bit records of a session's ranks with each other, and those of two runs.
//
// All ranks have the same result of allreduce, all-gather and broadcast. Of reduce-scatter and reduce, each
// rank has a result of its own, which only the same rank of another run can repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cli/bits/recorded_run.h"

namespace sluice::cli {

// The ranks that recorded the same of an operation.
struct RankGroup {
  std::optional<engine::BitOperation> operation;  // nothing: they have no record of it
  std::vector<uint32_t> ranks;
};

struct OperationDifference {
  uint64_t number = 0;
  std::vector<RankGroup> groups;  // the largest first
  // More than half of the ranks are in the first group, so the others are wrong.
  [[nodiscard]] bool has_majority() const noexcept;
};

struct RankComparison {
  uint64_t operations = 0;  // up to the end of the shortest record
  uint64_t compared = 0;
  uint64_t different = 0;
  uint64_t own_results = 0;  // not compared: each rank has a result of its own
  uint64_t not_hashed = 0;   // not compared: in device memory on all ranks but one, or on all
  std::vector<OperationDifference> differences;  // the first ones
  std::map<uint32_t, uint64_t> wrong;            // operations by the rank that a majority contradicts
  std::optional<uint64_t> running;               // hash of the compared operations, if equal on all ranks
};

// `most` limits RankComparison::differences.
[[nodiscard]] RankComparison compare_ranks(const RecordedSession& session, size_t most);

struct RunDifference {
  uint64_t number = 0;
  std::optional<engine::BitOperation> expected, found;  // nothing: the run has no record of it
  std::vector<uint32_t> ranks;  // that differ, of an operation with a result of its own on each rank
};

struct SessionComparison {
  uint64_t compared = 0;
  uint64_t different = 0;
  std::optional<RunDifference> first;
  uint64_t expected_end = 0, found_end = 0;  // one past the last operation of each; compared up to the lower
};

// Compares a session of a run with the same session of another run. Ranks that disagree within a run are
// outvoted; without a majority the same ranks are compared.
[[nodiscard]] SessionComparison compare_sessions(const RecordedSession& expected,
                                                 const RecordedSession& found);

}  // namespace sluice::cli
