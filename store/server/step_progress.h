// A step may begin while its deltas arrive, and readers may follow it while it is computed: both then take
// the time of one transfer, not of two. The mutex of the HostedModel protects both structs.
#pragma once

#include <cstdint>

#include "store/server/delta_buffers.h"
#include "store/versions/version_files.h"

namespace sluice::store {

// A delta of which the first `elements` are there.
struct ArrivingDelta {
  uint64_t number = 0;  // of the worker's push
  DeltaBuffer values;
  uint64_t elements = 0;
  bool is_lost = false;  // its connection has ended before
};

// One attempt at a version of one shard.
struct StepProgress {
  enum class State : uint8_t {
    kComputing,
    kPrepared,
    kCommitted,
    kAbandoned,  // the version will be made again, maybe of other deltas
  };
  uint64_t version = 0;
  uint64_t steps = 0;
  VersionView view;       // empty once committed or abandoned
  uint64_t elements = 0;  // computed, from the first one
  State state = State::kComputing;
};

}  // namespace sluice::store
