// Class Timeline merges the black boxes of several processes into one list of events, in the order of time,
// and knows the names of their ranks and reducers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/blackbox/blackbox_file.h"
#include "cli/blackbox/clock_offsets.h"

namespace sluice::cli {

class Timeline {
 public:
  struct Entry {
    Nanos at = 0;  // wall time of the reference clock
    size_t process = 0;
    const RecordedEvent* recorded = nullptr;

    [[nodiscard]] const blackbox::Event& event() const noexcept { return recorded->event; }
  };

  explicit Timeline(std::vector<RecordedProcess> processes);
  Timeline(const Timeline&) = delete;

  [[nodiscard]] const std::vector<RecordedProcess>& processes() const noexcept { return processes_; }
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] const ClockOffsets& clocks() const noexcept { return clocks_; }
  // The time at which a process wrote its file.
  [[nodiscard]] Nanos written_at(size_t process) const {
    return clocks_.wall_time(process, processes_[process].monotonic);
  }

  // "rank 3", "reducer 10.0.0.3:7470", or "node7:4711" for a process that is neither.
  [[nodiscard]] std::string source_name(const Entry& entry) const;
  [[nodiscard]] std::string process_name(size_t process) const;
  // "reducer 10.0.0.3:7470"; with an unknown address the first digits of the id.
  [[nodiscard]] std::string reducer_name(uint64_t id) const;
  // The text with the names of the reducers for their ids, which reducers use for each other.
  [[nodiscard]] std::string with_names(const std::string& text) const;

  // A reducer's own id for the one that the ranks of a session have.
  [[nodiscard]] uint64_t own_id(uint64_t reducer) const;
  // Whether a file has events of this rank or reducer.
  [[nodiscard]] bool has_rank(uint64_t session, uint64_t rank) const {
    return ranks_.contains({session, rank});
  }
  [[nodiscard]] bool has_reducer(uint64_t id) const { return reducers_.contains(own_id(id)); }
  // Whether the process has events of the session.
  [[nodiscard]] bool takes_part(size_t process, uint64_t session) const {
    return sessions_.contains({process, session});
  }

 private:
  void note(size_t process, const RecordedEvent& recorded);

  const std::vector<RecordedProcess> processes_;
  std::map<uint64_t, uint64_t> own_ids_;
  ClockOffsets clocks_;
  std::vector<Entry> entries_;
  std::map<uint64_t, std::string> names_;      // of reducers, as ranks call them
  std::map<uint64_t, std::string> listening_;  // addresses, as reducers say
  std::set<std::pair<uint64_t, uint64_t>> ranks_;
  std::set<uint64_t> reducers_;
  std::set<std::pair<size_t, uint64_t>> sessions_;
  std::map<size_t, std::set<uint64_t>> ranks_of_process_;
  std::map<size_t, std::set<uint64_t>> reducers_of_process_;
};

}  // namespace sluice::cli
