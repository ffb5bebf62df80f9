// The computations of a handshake: version selection and proofs of identity (protocol.md section 5).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::wire {

// The highest version that both sides support; nullopt if there is none.
[[nodiscard]] std::optional<uint8_t> common_version(uint8_t peer_min, uint8_t peer_max) noexcept;

// "1" or "1-3": for messages.
[[nodiscard]] std::string version_range(uint8_t min, uint8_t max);

// The job id of a HELLO; "default" if the field is empty.
[[nodiscard]] const std::string& job_name(const Hello& hello) noexcept;

// Job token = HMAC-SHA256(key, "sluice job token\0" + job). Workers hold the token. Only reducers and the job
// launcher hold the key.
[[nodiscard]] Digest job_token(std::span<const std::byte> key, const std::string& job);

// The job as which holders of the pool key prove it: reducers to each other, and operators that drain one.
inline constexpr const char* kReducerJob = "sluice reducers";

// The key id in HELLO: tells a reducer with several keys which token the client holds. It depends on the
// client's nonce, so nobody without the token can link two connections by it.
[[nodiscard]] uint64_t key_id(const Digest& token, const Nonce& nonce);

// The server's proof in WELCOME. It covers the role name and the bodies of HELLO and WELCOME as sent, with
// the mac of WELCOME zeroed. So it protects session, incarnation, rank, lane, purpose, job, features and both
// nonces against changes in transit. Headers are not covered.
[[nodiscard]] Mac server_proof(const Digest& token, const Hello& hello, const Welcome& welcome);

// The client's proof in JOIN, ATTACH, STATUS_QUERY and VERDICT_QUERY. It covers the same bodies with the
// client's role name, and the view hash (0 in the queries). Of a JOIN it covers only the view hash.
[[nodiscard]] Mac client_proof(const Digest& token, const Hello& hello, const Welcome& welcome,
                               uint64_t view_hash);

// The pre-shared key of TLS = HMAC-SHA256(token, "sluice tls psk\0").
[[nodiscard]] Digest tls_key(const Digest& token);

// The channel binding of TLS: SHA-256 over the bodies of HELLO and WELCOME as sent.
[[nodiscard]] Digest tls_binding(const Hello& hello, const Welcome& welcome);

}  // namespace sluice::wire
