// The first words on a connection to a reducer: connect, HELLO, WELCOME, and the proofs of the job token
// (PROTOCOL.md section 5). Cold: blocks the caller, with deadlines. Every error names the reducer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/endpoints.h"
#include "core/ids.h"
#include "core/result.h"
#include "gpu_client/engine/tls_terms.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/pairing.h"
#include "transport/tcp/socket.h"
#include "wire/handshake.h"
#include "wire/messages.h"

namespace sluice::engine {

// What lane connections may go over.
struct LaneTerms {
  bool rdma = false;       // where the reducer can, too
  bool only_rdma = false;  // a reducer that can't is an error
  std::string no_rdma{};   // why there is none here; empty: TCP was asked for
  transport::rdma::RailChoice choice{};
  transport::rdma::Rails rails{};                     // held open
  std::shared_ptr<transport::rdma::Memory> memory{};  // of the session; null without RDMA
};

// Who speaks, the same on every connection of a session.
struct Identity {
  SessionId session;
  Rank rank = 0;
  uint32_t ranks = 0;
  std::string job = "default";
  std::string tenant{};  // empty: the job's name counts as one
  // None: nothing is proved, and a reducer that asks for proof is an error.
  std::optional<wire::Digest> token;
  std::string interface_address;  // to connect from; empty: the route's
  // Wants a session that survives losses (PROTOCOL.md section 11).
  bool survives = false;
  std::shared_ptr<const TlsTerms> tls = nullptr;  // none: off
  LaneTerms lanes{};
};

struct Greeting {
  transport::tcp::Socket socket;
  std::string name;  // "reducer 10.0.0.2:7470"
  wire::Hello hello;
  wire::Welcome welcome;
  std::string no_pair{};  // a lane connection that is attached: why it goes over TCP
};

using transport::tcp::Until;

// "reducer 10.0.0.2:7470": how a reducer is called in messages.
[[nodiscard]] std::string name_of(const config::Endpoint& reducer);

// Connects and exchanges HELLO and WELCOME. Until `deadline` a connection that is refused is tried again:
// workers and reducers are often started at the same moment. kTimeout with the words of the last try when
// nothing came of it; kInvalidArgument, at once, for a source address that this host does not have;
// kNoCommonVersion, kUnauthenticated, or a code that the reducer refused with.
[[nodiscard]] Result<Greeting> greet(const config::Endpoint& reducer, const Identity& who,
                                     wire::Purpose purpose, uint32_t lane, uint64_t incarnation,
                                     Nanos deadline);

// The parts of greet(), for who decides by himself about another try. One connect: errors are connect_to's,
// without the reducer's name.
[[nodiscard]] Result<transport::tcp::Socket> connect_once(const config::Endpoint& reducer,
                                                          const Identity& who, const Until& until);
// HELLO and WELCOME, and the TLS handshake where both want TLS, on a new connection to `reducer`, called
// `name`.
[[nodiscard]] Result<Greeting> introduce(transport::tcp::Socket socket, const config::Endpoint& reducer,
                                         std::string name, const Identity& who, wire::Purpose purpose,
                                         uint32_t lane, uint64_t incarnation, const Until& until);

// The client's proof for JOIN, ATTACH, VERDICT_QUERY; zeros without a token.
[[nodiscard]] wire::Mac proof(const Greeting& greeting, const Identity& who, uint64_t view_hash);

// One request on a connection that was greeted. kTimeout, kShutdown when interrupted, kReducerLost when the
// connection ends, a code that tells what is wrong with the reducer's bytes, or the code it refused with.
[[nodiscard]] Result<void> send_frame(const Greeting& to, const std::vector<std::byte>& frame,
                                      const Until& until);
// The body of the next frame, which must be of type `expected`; REFUSED and ABORT become the error they
// carry.
[[nodiscard]] Result<std::vector<std::byte>> receive_body(const Greeting& from, wire::FrameType expected,
                                                          const Until& until);

// A peer's words as part of ours: one line, printable.
[[nodiscard]] std::string printable(std::string text);

template <typename Reply, typename Request>
[[nodiscard]] Result<Reply> ask(const Greeting& to, const Request& request, const Until& until) {
  if (auto sent = send_frame(to, wire::encode_message(request), until); !sent)
    return tl::unexpected(sent.error());
  auto body = receive_body(to, Reply::kType, until);
  if (!body) return tl::unexpected(body.error());
  Reply reply;
  if (const Status s = wire::decode_body(*body, reply); !s.ok()) {
    return fail(s.code(), to.name + ": its " + wire::to_string(Reply::kType) +
                              " is malformed: " + std::string(to_string(s.code())));
  }
  return reply;
}

}  // namespace sluice::engine
