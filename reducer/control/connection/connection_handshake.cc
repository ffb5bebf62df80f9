// The handshake of a connection: HELLO and WELCOME, TLS, then the request that decides what the connection is
// for (protocol.md section 5).
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "reducer/control/connection/connection.h"
#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"
#include "transport/tcp/address.h"
#include "wire/handshake.h"

namespace sluice::reducer {

void Connection::on_hello() {
  if (!decode_or_close(hello_)) return;
  const auto version = wire::common_version(hello_.min_version, hello_.max_version);
  if (!version) {
    return refuse({Errc::kNoCommonVersion, "no common protocol version: the reducer supports " +
                                               wire::version_range(wire::kVersionMin, wire::kVersionMax) +
                                               ", the client supports " +
                                               wire::version_range(hello_.min_version, hello_.max_version)});
  }
  if (hello_.purpose > wire::Purpose::kDrain) return close(Errc::kBadField);
  if (auto error = loop_.admission().check(hello_)) return refuse(*error, hello_.rank);
  if (auto error = loop_.check_connections(wire::job_name(hello_))) return refuse(*error, hello_.rank);
  auto credential = loop_.admission().credential_of(hello_);
  if (!credential) return refuse(credential.error(), hello_.rank);
  credential_ = *credential;
  welcome_ = loop_.make_welcome(*version, hello_.session);
  if (credential_) {
    welcome_.proof = 1;
    welcome_.mac = wire::server_proof(credential_->token, hello_, welcome_);
  }
  const bool offers_tls = (hello_.features & wire::kFeatureTls) != 0;
  if (loop_.options().tls == TlsMode::kRequire && !offers_tls) {
    return refuse(
        {Errc::kUnauthenticated, "reducer requires TLS, and the client did not offer it (SLUICE_TLS)"},
        hello_.rank);
  }
  state_ = offers_tls && loop_.tls() != nullptr ? State::kSecuring : State::kRequest;
  loop_.unproved().set_greeted(unproved_number_, true);
  send(welcome_);
}

// WELCOME is written, and nothing after HELLO has been read.
void Connection::start_tls() {
  const wire::Digest binding = wire::tls_binding(hello_, welcome_);
  transport::tcp::TlsPeer peer_identity{.identity = wire::job_name(hello_),
                                        .psk = std::nullopt,
                                        .host = {},
                                        .binding = std::as_bytes(std::span(binding))};
  // With a client CA a token does not replace the worker's certificate.
  if (credential_ && !loop_.tls()->has_ca()) {
    const wire::Digest key = wire::tls_key(credential_->token);
    std::ranges::copy(std::as_bytes(std::span(key)), peer_identity.psk.emplace().begin());
  }
  socket().async_handshake(*loop_.tls(), peer_identity, [self = shared_self()](const Result<void>& secured) {
    if (!self->is_open() || self->state_ != State::kSecuring) return;
    ControlCounters& counters = self->loop_.counters();
    ++(secured ? counters.tls_agreed : counters.tls_failed);
    if (!secured) {
      const auto& [code, text] = secured.error();
      if (code == Errc::kUnauthenticated) self->report_unauthenticated("TLS handshake failed: " + text);
      return self->close(code);
    }
    self->state_ = State::kRequest;
    self->read_header();
  });
}

std::optional<Error> Connection::check_proof(const wire::Mac& mac, uint64_t view_hash) {
  const bool is_valid =
      !credential_ ||
      wire::equal_digests(mac, wire::client_proof(credential_->token, hello_, welcome_, view_hash));
  if (!is_valid) {
    return Error{Errc::kUnauthenticated, "wrong or missing token for job \"" + wire::job_name(hello_) + "\""};
  }
  if (share_.is_taken()) return std::nullopt;  // another request of the connection
  loop_.unproved().remove(unproved_number_);
  auto share = loop_.budgets().take(JobBudgets::Resource::kConnections, wire::job_name(hello_), 1);
  if (!share) return share.error();
  share_ = std::move(*share);
  return std::nullopt;
}

void Connection::on_join() {
  wire::Join join;
  if (!decode_or_close(join)) return;
  if (auto error = check_proof(join.mac, join.view_hash)) return refuse(*error, hello_.rank);
  limit_each_frame();
  state_ = State::kControl;
  loop_.join(*this, hello_, join);
}

// True if the query has a valid proof. Otherwise the connection is refused or closed.
template <typename Query>
bool Connection::accept_query() {
  Query query;
  if (!decode_or_close(query)) return false;
  const auto error = check_proof(query.mac, 0);
  if (error) refuse(*error);
  return !error;
}

void Connection::on_request() {
  switch (hello_.purpose) {
    case wire::Purpose::kControl:
      if (header().type == wire::FrameType::kAttach && hello_.incarnation != 0) return on_resume();
      return on_join();
    case wire::Purpose::kLane: return on_attach();
    case wire::Purpose::kStatus:
      if (accept_query<wire::StatusQuery>()) answer_status({});
      return;
    case wire::Purpose::kVerdict:
      if (!accept_query<wire::VerdictQuery>()) return;
      send(loop_.sessions().find_verdict(hello_));
      return finish();
    case wire::Purpose::kGather: return on_gather();
    case wire::Purpose::kStore: return on_store();
    case wire::Purpose::kDrain: return on_drain();
  }
}

void Connection::on_drain() {
  if (!accept_query<wire::StatusQuery>()) return;
  if (wire::job_name(hello_) != wire::kReducerJob)
    return refuse({Errc::kUnauthenticated, "a drain needs the pool key, a job token is not enough"});
  if (!credential_ && !transport::tcp::is_peer_on_this_host(socket().fd()))
    return refuse({Errc::kUnauthenticated,
                   "reducer has no pool key (--key-file), so it can only be drained on its host"});
  loop_.log().info("drain requested by " + peer());
  // After the answer: a reducer without sessions closes all connections that do not finish.
  answer_status([this] { loop_.drain(); });
}

void Connection::answer_status(std::function<void()> then) {
  state_ = State::kAnswering;
  loop_.answer_status([self = shared_self(), then = std::move(then)](const std::string& json) {
    if (self->is_open() && !json.empty()) {
      self->send(wire::StatusReply{.json = json});
      self->finish();
    }
    if (then) then();
  });
}

void Connection::on_store() {
  if (!accept_query<wire::StoreRequest>()) return;
  if (!loop_.options().on_store_connection)
    return refuse({Errc::kUnsupported, "this reducer keeps no models; start it with --state"});
  if (loop_.is_draining()) return refuse({Errc::kDraining, "reducer is draining"});
  const std::string job = wire::job_name(hello_), tenant = loop_.sessions().tenant_of(hello_);
  std::shared_ptr<void> place;
  if (loop_.options().admit_store) {
    auto admitted = loop_.options().admit_store(job, tenant);
    if (!admitted) return refuse(admitted.error());
    place = std::move(*admitted);
  }
  state_ = State::kHandedOver;
  transport::tcp::Socket taken = release_socket();
  loop_.audit().write_models(job, tenant, peer(), pool_key() == PoolKey::kOld);
  if (taken.valid())
    loop_.options().on_store_connection(std::move(taken), peer(), job, hello_.features, std::move(place));
}

void Connection::on_gather() {
  if (gather_group_ != nullptr && header().type == wire::FrameType::kAbort) {
    wire::Abort abort;
    if (!decode_or_close(abort)) return;
    GatherRegistry::leave_group(std::exchange(gather_group_, nullptr), *this, hello_.rank,
                                {abort.code, std::move(abort.text)});
    return finish();
  }
  // A client reads the answer before it sends another round.
  if (is_backed_up()) return close(Errc::kTooMany);
  wire::Gather gather;
  if (!decode_or_close(gather)) return;
  if (auto error = check_proof(gather.mac, 0)) return refuse(*error, hello_.rank);
  if (loop_.is_draining())
    return refuse({Errc::kDraining, "reducer is draining and accepts no new sessions"}, hello_.rank);
  if (Session* const session = loop_.sessions().find(hello_.session);
      session != nullptr && session->is_joining()) {
    if (const auto error = session->check_job(hello_)) return refuse(*error, hello_.rank);
    if (hello_.rank >= session->rank_count()) {
      return refuse({Errc::kBadField, "rank " + std::to_string(hello_.rank) + " is not one of " +
                                          std::to_string(session->rank_count()) + " ranks"},
                    hello_.rank);
    }
    const std::vector<uint32_t> joined = session->joined_ranks();
    const Error error = GatherRegistry::modes_differ(joined.empty() ? 0 : joined.front(), hello_.rank);
    refuse(error, hello_.rank);
    loop_.gathers().note_refused(*this, hello_, error);
    return session->fail(error.code, hello_.rank, error.text);
  }
  limit_each_frame();
  state_ = State::kGather;
  loop_.gathers().add(*this, hello_, gather, loop_.now());
}

void Connection::send_gathered(std::shared_ptr<const GatheredFrames> frames,
                               std::shared_ptr<GatherGroup> group) {
  gather_group_ = std::move(group);
  set_deadline(loop_.now() + loop_.options().join_timeout);
  asio::post(socket().get_executor(), [self = shared_self(), frames = std::move(frames)] {
    for (const auto& frame : *frames) self->send_frame(frame);
  });
}

void Connection::abort_gather(const Error& why, uint32_t rank) {
  if (!is_open()) return;
  send(wire::Abort{{.code = why.code, .rank = rank, .text = why.text}});
  finish();
}

Session* Connection::find_session_of_attach(wire::Attach& attach) {
  if (!decode_or_close(attach)) return nullptr;
  if (auto error = check_proof(attach.mac, attach.view_hash)) {
    refuse(*error, hello_.rank);
    return nullptr;
  }
  Session* const session = loop_.sessions().find(hello_.session);
  if (session == nullptr) {
    refuse({Errc::kUnknownSession, "session " + to_string(hello_.session) + " is not on this reducer"},
           hello_.rank);
  }
  return session;
}

// A control connection of a running session that replaces one that broke.
void Connection::on_resume() {
  if ((hello_.features & wire::kFaultToleranceFeatures) != wire::kFaultToleranceFeatures)
    return close(Errc::kUnexpectedMessage);
  wire::Attach attach;
  Session* const session = find_session_of_attach(attach);
  if (session == nullptr) return;
  if (auto error = session->check_resume(hello_, attach)) return refuse(*error, hello_.rank);
  limit_each_frame();
  state_ = State::kControl;
  session->resume(shared_self(), hello_.rank);
}

void Connection::on_attach() {
  wire::Attach attach;
  Session* const session = find_session_of_attach(attach);
  if (session == nullptr) return;
  const bool uses_memory = (hello_.features & welcome_.features & wire::kFeatureMemory) != 0;
  const bool uses_rdma = !uses_memory && !loop_.rdma().rails.names.empty() &&
                         (hello_.features & wire::kFeatureRdma) != 0 && !socket().has_tls();
  if (loop_.rdma().required && !uses_rdma && !uses_memory)
    return refuse_tcp(socket().has_tls() ? "the connection uses TLS" : "the client did not request RDMA");
  if (auto slots = session->admit_lane(hello_, attach); slots) {
    set_handle(attach.handle);
    // Set before send(): this object reads nothing more from a lane over TCP.
    if (uses_rdma || uses_memory) {
      state_ = State::kPairing;
      loop_.deadlines().bring_forward(this, loop_.now());  // next_check()
    } else {
      hand_over_when_written_ = true;
    }
    set_deadline(loop_.now() + loop_.options().handshake_timeout);
    send(wire::Attached{.slots = *slots});
  } else {
    refuse(slots.error(), hello_.rank);
  }
}

void Connection::hand_over_to_lane() {
  transport::tcp::Socket lane_socket = release_socket();
  lane_socket.attach_channel(std::move(pair_));
  // The session may have ended while ATTACHED was being written.
  Session* const session = loop_.sessions().find(hello_.session);
  if (!lane_socket.valid() || session == nullptr || session->handle() != handle()) return;
  session->on_lane_attached(hello_.rank, hello_.lane, std::move(lane_socket));
}

}  // namespace sluice::reducer
