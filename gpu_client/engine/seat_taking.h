// What a rank asks of one reducer after WELCOME: a seat in a session (JOIN), lane connections (ATTACH). The
// same steps for a session that begins, a reducer that is added to one that runs, and a connection that is
// opened again (PROTOCOL.md sections 5 and 11). Cold: blocks the caller, with deadlines.
#pragma once

#include <cstdint>

#include "config/endpoints.h"
#include "core/result.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/membership.h"

namespace sluice::engine {

// What a WELCOME offers must be enough for a session whose user asks for `slot_bytes` (0: whatever follows).
[[nodiscard]] Result<void> check_offer(const Greeting& greeting, uint32_t slot_bytes);

// Lane connections to a reducer that offers `offered`, where the user asks for `asked` (0: what it offers).
[[nodiscard]] uint16_t lanes_of(uint32_t asked, uint16_t offered) noexcept;

// JOIN and JOINED; the greeting's socket becomes the seat's control connection, and stays where it is on an
// error: closing it would be told to the other ranks before the reason is. `join` without its proof.
// `address`: the reducer's, as the user gave it.
[[nodiscard]] Result<Seat> take_seat(Greeting& greeting, const config::Endpoint& address, const Identity& who,
                                     wire::Join join, const Until& until);

struct AttachTerms {
  uint64_t reducer = 0;    // the process that must answer
  uint32_t handle = 0;     // JOINED's
  uint64_t view_hash = 0;  // JOIN's
  uint32_t slots = 0;      // W; 0 for a control connection
};

// Of a lane that is attached to a session that runs: that it goes over TCP, where it was to go over RDMA.
void say_transport(const Greeting& greeting, const Identity& who);

// ATTACH and ATTACHED, and what a lane connection goes over (lane_terms.h). kReducerLost when another process
// answers there, kMismatch when it grants other slots.
[[nodiscard]] Result<void> attach(Greeting& greeting, const Identity& who, const AttachTerms& terms,
                                  const Until& until);
// What attach() says of another process.
[[nodiscard]] Error another_process(const Greeting& greeting);

// A reducer that is added to a session that runs.
struct NewcomerTerms {
  config::Endpoint address;
  uint64_t reducer = 0;  // its id, as the roster has it
  uint64_t incarnation = 0;
  const wire::View* first = nullptr;  // the session's first view
  uint32_t lanes = 0;                 // as the user asked, 0: what it offers
  Nanos join_timeout = 0;
};

// Takes a seat and all lane connections there; tries once. COMMIT has not been sent. What JOIN tells depends
// on the first view and this reducer alone, so that ranks agree on it whichever proposals they have seen.
[[nodiscard]] Result<Seat> join_newcomer(const NewcomerTerms& terms, const Identity& who, const Until& until);

}  // namespace sluice::engine
