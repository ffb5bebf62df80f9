// Struct Membership is the result of a successful join: the agreed view and the connections to its reducers.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_client/engine/join/reducer_reservation.h"
#include "wire/view.h"

namespace sluice::engine {

struct Membership {
  wire::View view;
  uint64_t view_hash = 0;
  uint64_t incarnation = 0;
  bool fault_tolerant = false;  // this rank and every reducer of the view support recovery from losses
  std::vector<ReducerReservation> reservations;  // in the order of the view; the first reducer is the arbiter
};

}  // namespace sluice::engine
