// What only the ranks of a session can say when they meet (meeting.h): the name of the socket follows from
// the session, the proofs from the job token.
#pragma once

#include <string>

#include "core/ids.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/local/meeting_messages.h"
#include "wire/sha256.h"

namespace sluice::local {

// Of the host whose first rank is `first`. The same on all ranks of a session and user, and of no use to
// anyone who lists the names.
[[nodiscard]] std::string meeting_socket_name(const SessionId& session, Rank first);

// HMACs of the job token over both nonces, with a zero token where there is none.
[[nodiscard]] wire::Digest make_leader_proof(const engine::Identity& identity, const LocalHello& hello,
                                             const LocalChallenge& challenge);
[[nodiscard]] wire::Digest make_rank_proof(const engine::Identity& identity, const LocalHello& hello,
                                           const LocalChallenge& challenge);

}  // namespace sluice::local
