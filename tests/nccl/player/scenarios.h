// What the player can play. Each runs in every rank.
#pragma once

#include "tests/nccl/player/job.h"

namespace player {

// scenario_collnet.cc
void play_kinds(Rank& rank);         // every supported type and operator, tails, reduceSupport
void play_in_place(Rank& rank);      // the same in place, and large ones, beside others that are not
void play_window(Rank& rank);        // large requests, several groups, chunk sizes that change
void play_order(Rank& rank);         // connect's rank is not the place of the handle
void play_registration(Rank& rank);  // regMr of other ranges while requests run
// scenario_flood.cc
void play_flood(Rank& rank);  // more requests than may be open
// scenario_budget.cc
void play_budget(Rank& rank);  // open bytes that are taken, and that are not
// scenario_communicators.cc
void play_communicators(Rank& rank);  // several at once, `busy` of them with traffic
void play_heads(Rank& rank);          // head groups with one commId, in one process or several
void play_repeat(Rank& rank);         // init, traffic, finalize, over and over
// scenario_failure.cc
void play_abort(Rank& rank);        // closed with requests open, then begun anew
void play_abort_one(Rank& rank);    // one rank goes away with requests open, the others hear of it
void play_connect(Rank& rank);      // connect alone; the answer is the same everywhere
void play_until_error(Rank& rank);  // traffic until something breaks: all ranks must get an error
// scenario_chaos.cc
void play_until_stopped(
    Rank& rank);             // traffic of all sorts until stdin ends, whatever is done to the reducers
void play_late(Rank& rank);  // a rank comes late, no error
// scenario_net.cc
void play_net_ring(Rank& rank);
void play_net_pairs(Rank& rank);
void play_net_close(Rank& rank);
void play_net_killed(Rank& rank);
// scenario_offer.cc
void play_offer(Rank& rank);
// scenario_tuner.cc
void play_tuner(Rank& rank);

}  // namespace player
