// Groups bit records by session, and sessions by run, so that they can be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bits/bit_record_reader.h"
#include "core/result.h"

namespace sluice::cli {

// The records of one session, at most one of each rank, in the order of the ranks.
struct RecordedSession {
  std::string session;
  uint32_t ranks = 0;  // of the session, not only those with a record
  std::vector<BitRecord> records;
};

struct RecordedRun {
  std::string name;                       // "A", "B", ...
  std::vector<RecordedSession> sessions;  // in the order of their begin
};

// A file, or a folder whose files are those of one run.
struct BitRecordGroup {
  bool is_folder = false;
  std::vector<BitRecord> records;
};

// Each folder is a run. Each session of the other files is a run, and a second record of a rank in the same
// session begins another one. Runs are named in the order of the groups, folders first. Returns
// kInvalidArgument when a folder has two records of a rank, or the records of a session do not agree in its
// number of ranks.
[[nodiscard]] Result<std::vector<RecordedRun>> group_into_runs(std::vector<BitRecordGroup> groups);

// Class OperationCursor walks through the operations of a session, in all its records at once.
class OperationCursor {
 public:
  // Stands at the first operation. `session` outlives the cursor.
  explicit OperationCursor(const RecordedSession& session);

  // The number of the current operation, the lowest of those that are left; nothing at the end.
  [[nodiscard]] std::optional<uint64_t> number() const noexcept { return number_; }
  // What record i has of it; null: nothing.
  [[nodiscard]] const RecordedOperation* at(size_t i) const noexcept;
  void next() noexcept;

 private:
  void find_number() noexcept;

  const RecordedSession& session_;
  std::vector<size_t> positions_;  // by record: of its first operation from the current one on
  std::optional<uint64_t> number_;
};

}  // namespace sluice::cli
