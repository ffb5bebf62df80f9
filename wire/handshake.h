// The pure part of a handshake: which version, and who proves what to whom. PROTOCOL.md section 5.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::wire {

// The highest version both sides speak; nothing when there is none.
[[nodiscard]] std::optional<uint8_t> common_version(uint8_t peer_min, uint8_t peer_max) noexcept;

// "1" or "1-3": for messages.
[[nodiscard]] std::string version_range(uint8_t min, uint8_t max);

// The job that a HELLO names: "default" when it names none.
[[nodiscard]] const std::string& job_name(const Hello& hello) noexcept;

// Job token = HMAC-SHA256(key, "sluice job token\0" + job). Workers hold the token, only reducers and whoever
// launches jobs hold the key.
[[nodiscard]] Digest job_token(std::span<const std::byte> key, const std::string& job);

// Server's proof in WELCOME: over the role word and the bodies of HELLO and WELCOME as sent, the latter with
// its mac zeroed. So session, incarnation, rank, lane, purpose, job, features and both nonces are covered,
// and nothing of either body can be changed on the way. Headers are not covered.
[[nodiscard]] Mac server_proof(const Digest& token, const Hello& hello, const Welcome& welcome);

// Client's proof in JOIN, ATTACH, STATUS_QUERY, VERDICT_QUERY: over the same with its own role word, and the
// view hash (0 in the queries, which have none). Of a JOIN nothing but the view hash is covered.
[[nodiscard]] Mac client_proof(const Digest& token, const Hello& hello, const Welcome& welcome,
                               uint64_t view_hash);

// The pre-shared key of TLS = HMAC-SHA256(token, "sluice tls psk\0").
[[nodiscard]] Digest tls_key(const Digest& token);

// What TLS is bound to: SHA-256 over the bodies of HELLO and WELCOME as sent.
[[nodiscard]] Digest tls_binding(const Hello& hello, const Welcome& welcome);

}  // namespace sluice::wire
