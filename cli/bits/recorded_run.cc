#include "cli/bits/recorded_run.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::cli {
namespace {

const BitRecord* record_of(const RecordedSession& session, uint32_t rank) noexcept {
  const auto found = std::ranges::find(session.records, rank, &BitRecord::rank);
  return found == session.records.end() ? nullptr : &*found;
}

Result<void> add_record(RecordedSession& session, BitRecord record) {
  if (!session.records.empty() && session.ranks != record.ranks) {
    return invalid(record.file + ": the session has " + std::to_string(record.ranks) + " ranks, but " +
                   std::to_string(session.ranks) + " in " + session.records.front().file);
  }
  session.session = record.session;
  session.ranks = record.ranks;
  session.records.push_back(std::move(record));
  return {};
}

std::string run_name(size_t index) {
  return index < 26 ? std::string(1, static_cast<char>('A' + index)) : std::to_string(index + 1);
}

// Times as text sort in their order.
std::string begin_of(const RecordedSession& session) {
  return std::ranges::min(session.records, {}, &BitRecord::started).started;
}

Result<RecordedRun> run_of_folder(std::vector<BitRecord> records) {
  RecordedRun run;
  for (BitRecord& record : records) {
    auto session = std::ranges::find(run.sessions, record.session, &RecordedSession::session);
    if (session == run.sessions.end()) session = run.sessions.emplace(session);
    if (const BitRecord* const other = record_of(*session, record.rank)) {
      return invalid(record.file + ": a second record of rank " + std::to_string(record.rank) +
                     " in the folder's session " + record.session.substr(0, 8) + ", besides " + other->file);
    }
    SLUICE_RETURN_IF_ERROR(add_record(*session, std::move(record)));
  }
  std::ranges::stable_sort(run.sessions, {}, begin_of);
  return run;
}

// Adds a record to the first run of its session that lacks the rank, or begins a run.
Result<void> add_file(std::vector<RecordedRun>& runs, BitRecord record) {
  const auto lacks_it = [&](const RecordedRun& run) {
    return run.sessions.front().session == record.session &&
           record_of(run.sessions.front(), record.rank) == nullptr;
  };
  auto run = std::ranges::find_if(runs, lacks_it);
  if (run == runs.end()) run = runs.insert(run, {.name = {}, .sessions = std::vector<RecordedSession>(1)});
  return add_record(run->sessions.front(), std::move(record));
}

}  // namespace

Result<std::vector<RecordedRun>> group_into_runs(std::vector<BitRecordGroup> groups) {
  std::vector<RecordedRun> folders;
  std::vector<RecordedRun> runs;
  for (BitRecordGroup& group : groups) {
    if (group.is_folder) {
      SLUICE_ASSIGN_OR_RETURN(run, run_of_folder(std::move(group.records)));
      folders.push_back(std::move(run));
      continue;
    }
    for (BitRecord& record : group.records) SLUICE_RETURN_IF_ERROR(add_file(runs, std::move(record)));
  }
  runs.insert(runs.begin(), std::make_move_iterator(folders.begin()), std::make_move_iterator(folders.end()));
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].name = run_name(i);
    for (RecordedSession& session : runs[i].sessions)
      std::ranges::sort(session.records, {}, &BitRecord::rank);
  }
  return runs;
}

OperationCursor::OperationCursor(const RecordedSession& session)
    : session_(session), positions_(session.records.size()) {
  find_number();
}

const RecordedOperation* OperationCursor::at(size_t i) const noexcept {
  const std::vector<RecordedOperation>& operations = session_.records[i].operations;
  const bool is_left = positions_[i] < operations.size();
  return is_left && operations[positions_[i]].operation.number == number_ ? &operations[positions_[i]]
                                                                          : nullptr;
}

void OperationCursor::next() noexcept {
  for (size_t i = 0; i < positions_.size(); ++i) positions_[i] += at(i) != nullptr ? 1 : 0;
  find_number();
}

void OperationCursor::find_number() noexcept {
  number_.reset();
  for (size_t i = 0; i < positions_.size(); ++i) {
    const std::vector<RecordedOperation>& operations = session_.records[i].operations;
    if (positions_[i] == operations.size()) continue;
    const uint64_t number = operations[positions_[i]].operation.number;
    number_ = std::min(number_.value_or(number), number);
  }
}

}  // namespace sluice::cli
