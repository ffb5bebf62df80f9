// Class Recorder measures the operations of a session whose ranks share hosts, for its observers, as
// engine::OperationRecorder does for sessions of the network. It exists only in a session with observers.
//
// Of the parts of an operation's time it knows the time until its first piece: the rest, in which ranks copy,
// add and wait for each other and for rails, counts as on the wire.
//
// The thread that makes progress.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "core/units.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/operation_recorder.h"

namespace sluice::local {

class Recorder {
 public:
  // `table` outlives the object. `rank` is the global one.
  Recorder(const engine::OpTable& table, engine::OperationObservers observers, Rank rank);
  Recorder(const Recorder&) = delete;

  // This rank has arrived at a piece of the operation.
  void piece_arrived(uint32_t op) noexcept;
  // This rank has its result.
  void piece_ended(uint32_t op) noexcept;
  // Before OpTable::end().
  void operation_ended(uint32_t op, Errc status) noexcept;

 private:
  struct Times {
    uint32_t generation = 0;  // of the operation; another one: stale
    uint32_t pieces = 0;      // ended
    Nanos first_arrival = 0, last_arrival = 0, first_end = 0;
  };
  [[nodiscard]] Times& times(uint32_t op) noexcept;

  const engine::OpTable& table_;
  const engine::OperationObservers observers_;
  const Rank rank_;
  std::vector<Times> times_;  // by index in the table
};

}  // namespace sluice::local
