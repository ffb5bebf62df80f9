// The scenarios of the player. Each runs in every rank.
#pragma once

#include "tests/nccl/player/job.h"

namespace player {

// scenario_collnet.cc
void run_kinds(Rank& rank);         // every supported type and operator, incomplete chunks, reduceSupport
void run_in_place(Rank& rank);      // the same in place, and large requests, mixed with requests not in place
void run_window(Rank& rank);        // large requests, several groups, changing chunk sizes
void run_order(Rank& rank);         // the rank of connect differs from the position of the handle
void run_registration(Rank& rank);  // regMr of other ranges while requests run
// scenario_requests.cc
void run_flood(Rank& rank);   // more requests than may be open
void run_budget(Rank& rank);  // limit of open bytes: accepted and refused requests
// scenario_communicators.cc
void run_communicators(Rank& rank);  // several communicators, `busy` of them with concurrent traffic
void run_heads(Rank& rank);          // head groups with one commId, in one process or several
void run_repeat(Rank& rank);         // repeated init, traffic and finalize
// scenario_split.cc
void run_split(Rank& rank);  // children of a communicator, with and without CollNet
// scenario_shrink.cc
void run_shrink(Rank& rank);       // a child without a rank that died with requests open
void run_shrink_idle(Rank& rank);  // a child without a rank that died while the parent was idle
void run_grow(Rank& rank);         // a child with one more rank
// scenario_failure.cc
void run_abort(Rank& rank);        // closes with requests open, then opens a new communicator
void run_abort_one(Rank& rank);    // one rank closes with requests open; the others get an error
void run_connect(Rank& rank);      // connect; the result must be the same on all ranks
void run_until_error(Rank& rank);  // traffic until a failure: all ranks must get an error
void run_late(Rank& rank);         // a rank starts late, without an error
// scenario_chaos.cc
void run_until_stopped(Rank& rank);  // varied traffic until stdin is closed, despite failures of reducers
// scenario_net.cc
void run_net_ring(Rank& rank);    // messages of many sizes around a ring
void run_net_pairs(Rank& rank);   // concurrent messages between all pairs
void run_net_close(Rank& rank);   // ranks close with requests open
void run_net_killed(Rank& rank);  // a rank is killed with requests open
// scenario_capabilities.cc
void run_capabilities(Rank& rank);  // prints the name and the numbers of devices
// scenario_tuner.cc
void run_tuner(Rank& rank);  // all tuner versions
// scenario_profiler.cc
void run_profiler(Rank& rank);  // all profiler versions, with offloaded allreduces
// scenario_verdict.cc
void run_verdict(Rank& rank);        // communicators with and without offload, each with one verdict
void run_reload(Rank& rank);         // dlclose and dlopen between communicators with a tuner
void run_mixed_nodes(Rank& rank);    // the last node uses NCCL's own network
void run_dropped_error(Rank& rank);  // after a failed session the tuner fails the next allreduce, or not

}  // namespace player
