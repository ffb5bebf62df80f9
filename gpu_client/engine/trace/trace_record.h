// Type TraceRecord is what the observer of a trace passes to the thread that writes the file: plain values of
// a fixed size.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "core/units.h"
#include "gpu_client/engine/trace/operation_observer.h"

namespace sluice::engine {

struct AddedReducer {
  uint32_t reducer = 0;
  std::array<char, 128> name{};
};

// All chunks of a reducer since the session's begin, not only the sampled ones.
struct ReducerTotals {
  uint32_t reducer = 0;
  Nanos at = 0;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  TimeParts parts{};
};

using TraceRecord = std::variant<std::monostate, OperationRecord, ChunkTiming, AddedReducer, ReducerTotals,
                                 StallRecord, ViewChangeRecord>;

}  // namespace sluice::engine
