// Struct Handshake is a connection to a reducer after HELLO and WELCOME, with the proofs of the job token and
// TLS (protocol.md section 5). The functions make the handshake and exchange requests on the connection. They
// block, with deadlines. Every error names the reducer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/ids.h"
#include "core/result.h"
#include "gpu_client/engine/base/member_names.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/credentials.h"
#include "gpu_client/engine/join/lane_settings.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"
#include "wire/handshake.h"
#include "wire/messages.h"
#include "wire/sum_order.h"

namespace sluice::engine {

// Describes this rank to the reducers; the same on every connection of a session.
struct Identity {
  SessionId session;
  Rank rank = 0;
  uint32_t ranks = 0;
  std::string job = "default";
  std::string tenant{};  // empty: the job's name is the tenant
  // Without a token nothing is proved, and a reducer that requires a proof is an error.
  std::optional<wire::Digest> token;
  // A second one, of which the reducer proves either. For reducers, while their pool changes its key.
  std::optional<wire::Digest> old_token = std::nullopt;
  std::string interface_address;  // local address to connect from; empty: chosen by the route
  bool fault_tolerant = false;    // request a fault-tolerant session (protocol.md section 11)
  // kTree requests the tree; a reducer of an earlier release makes the session one in groups.
  wire::SumOrder order = wire::SumOrder::kTree;
  std::shared_ptr<const TlsSettings> tls = nullptr;  // null: no TLS
  LaneSettings lanes{};
  // Of a session that is part of another one; null: texts name ranks. Only Session's callers and the log see
  // these names.
  std::shared_ptr<const MemberNames> names = nullptr;

  [[nodiscard]] SessionLog log() const { return {session, rank, names}; }
};

struct Handshake {
  transport::tcp::Socket socket;
  std::string name;  // "reducer 10.0.0.2:7470"
  wire::Hello hello;
  wire::Welcome welcome;
  std::optional<wire::Digest> token{};  // that both sides prove; nothing: no authentication
  std::string tcp_reason{};  // why an attached lane connection uses TCP; empty: RDMA, or TCP was selected
  // In whose process the reducer runs, if that is known: where the connection ends, the rank has ended.
  std::optional<Rank> worker{};
};

using transport::tcp::Deadline;

// The name of a reducer in messages: "reducer 10.0.0.2:7470".
[[nodiscard]] std::string reducer_name(const config::Endpoint& reducer);

// Connects and performs the handshake. A refused connection is retried until `deadline`, because workers and
// reducers are often started at the same time. Errors:
// - kTimeout with the text of the last attempt; kShutdown when interrupted.
// - kInvalidArgument, without retries, for a local address that this host does not have.
// - kNoCommonVersion, kUnauthenticated, or the code with which the reducer refused.
[[nodiscard]] Result<Handshake> connect_and_handshake(const config::Endpoint& reducer,
                                                      const Identity& identity, wire::Purpose purpose,
                                                      uint32_t lane, uint64_t incarnation,
                                                      const Deadline& deadline);
// The same for a reducer that messages call `name`.
[[nodiscard]] Result<Handshake> connect_and_handshake(const config::Endpoint& reducer,
                                                      const std::string& name, const Identity& identity,
                                                      wire::Purpose purpose, uint32_t lane,
                                                      const Deadline& deadline);

// The two steps of connect_and_handshake(), for callers with their own retries. This one connects once; its
// errors are those of connect_to(), without the reducer's name.
[[nodiscard]] Result<transport::tcp::Socket> connect_once(const config::Endpoint& reducer,
                                                          const Identity& identity, const Deadline& deadline);
// Exchanges HELLO and WELCOME on a new connection, and performs the TLS handshake if both ends use TLS.
// `name` is the reducer's name in messages.
[[nodiscard]] Result<Handshake> perform_handshake(transport::tcp::Socket socket,
                                                  const config::Endpoint& reducer, std::string name,
                                                  const Identity& identity, wire::Purpose purpose,
                                                  uint32_t lane, uint64_t incarnation,
                                                  const Deadline& deadline);

// Random bytes of the system. Errors: kSystem.
[[nodiscard]] Result<wire::Nonce> make_nonce();

// The client's proof for JOIN, ATTACH and the queries; zeros without a token.
[[nodiscard]] wire::Mac client_proof(const Handshake& handshake, uint64_t view_hash);

// Sends a frame. Errors of send_frame() and receive_body(): kTimeout; kShutdown when interrupted;
// kReducerLost, or kPeerLost with Handshake::worker, when the connection ends; the error of a malformed
// frame; or the code with which the reducer refused.
[[nodiscard]] Result<void> send_frame(const Handshake& to, const std::vector<std::byte>& frame,
                                      const Deadline& deadline);
// Receives the body of the next frame, which must have type `expected`. REFUSED and ABORT become the error
// that they carry.
[[nodiscard]] Result<std::vector<std::byte>> receive_body(const Handshake& from, wire::FrameType expected,
                                                          const Deadline& deadline);

// Sends a request and receives its reply.
template <typename Reply, typename Request>
[[nodiscard]] Result<Reply> send_request(const Handshake& to, const Request& request,
                                         const Deadline& deadline) {
  if (auto sent = send_frame(to, wire::encode_message(request), deadline); !sent)
    return tl::unexpected(sent.error());
  auto body = receive_body(to, Reply::kType, deadline);
  if (!body) return tl::unexpected(body.error());
  Reply reply;
  if (const Status s = wire::decode_body(*body, reply); !s.ok()) {
    return fail(s.code(), to.name + ": malformed " + wire::to_string(Reply::kType) + ": " +
                              std::string(to_string(s.code())));
  }
  return reply;
}

}  // namespace sluice::engine
