#include "gpu_client/local/meeting_proof.h"

#include <unistd.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/text_encoding.h"
#include "wire/message_codec.h"

namespace sluice::local {
namespace {

template <typename T>
void append(std::vector<std::byte>& out, const T& bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  out.insert(out.end(), view.begin(), view.end());
}

wire::Digest make_proof(const engine::Identity& identity, std::string_view role, const LocalHello& hello,
                        const LocalChallenge& challenge) {
  std::vector<std::byte> data;
  append(data, role);
  append(data, identity.session.bytes);
  append(data, wire::encode_body(hello));
  append(data, challenge.nonce);
  const wire::Digest token = identity.token.value_or(wire::Digest{});
  return wire::hmac_sha256(std::as_bytes(std::span(token)), data);
}

}  // namespace

std::string meeting_socket_name(const SessionId& session, Rank first) {
  std::vector<std::byte> data;
  append(data, std::string_view("sluice local session"));
  append(data, session.bytes);
  const wire::Digest digest = wire::sha256(data);
  return "sluice-" + std::to_string(::geteuid()) + "-" + hex_text(std::span(digest).first<16>()) + "-" +
         std::to_string(first);
}

wire::Digest make_leader_proof(const engine::Identity& identity, const LocalHello& hello,
                               const LocalChallenge& challenge) {
  return make_proof(identity, "sluice local leader", hello, challenge);
}

wire::Digest make_rank_proof(const engine::Identity& identity, const LocalHello& hello,
                             const LocalChallenge& challenge) {
  return make_proof(identity, "sluice local rank", hello, challenge);
}

}  // namespace sluice::local
