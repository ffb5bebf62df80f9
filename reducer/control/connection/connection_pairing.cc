// Negotiates RDMA for an attached lane connection: PAIR in both directions, then PAIRED (protocol.md section
// 5).
#include <exception>
#include <span>
#include <utility>

#include "reducer/control/connection/connection.h"
#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"
#include "transport/memory/pairing.h"
#include "transport/rdma/pairing.h"

namespace sluice::reducer {

void Connection::on_pair() {
  wire::Pair request;
  if (is_creating_pair_) return close(Errc::kUnexpectedMessage);
  if (!decode_or_close(request)) return;
  if ((hello_.features & welcome_.features & wire::kFeatureMemory) != 0) return on_pipe_offered(request);
  if (request.address.empty()) return continue_on_tcp(request.reason);
  const auto ends = transport::rdma::connection_gids(socket().fd());
  if (!ends) return close(ends.error().code);
  const auto address = std::as_bytes(std::span(request.address));
  if (auto checked = transport::rdma::check_pair_address(*ends, address); !checked)
    return continue_on_tcp(checked.error().text);
  pair_reservation_ = loop_.queue_pairs().reserve();
  if (!pair_reservation_) return continue_on_tcp("too many queue pairs are being set up on this reducer");
  const Session* const session = loop_.sessions().find(hello_.session);
  if (session == nullptr || session->handle() != handle()) return continue_on_tcp("the session has ended");
  is_creating_pair_ = true;
  wants_pair_.store(true, std::memory_order_relaxed);
  loop_.queue_pairs().create(shared_self(), *ends, std::move(request.address),
                             session->pair_memory(hello_.rank, hello_.lane));
}

// The client is in this process if the key is known: nobody else can know it.
void Connection::on_pipe_offered(const wire::Pair& request) {
  hand_over_when_written_ = true;
  pair_ = transport::memory::take_offered_pipe(request.address);
  if (pair_) return send(wire::Pair{.address = request.address});
  send(wire::Pair{.reason = request.reason.empty() ? "the reducer runs in another process" : request.reason});
}

void Connection::on_pair_created(Result<transport::rdma::PairOffer> created) noexcept {
  is_creating_pair_ = false;
  if (!is_open() || state_ != State::kPairing) {  // the connection has ended meanwhile
    if (created) loop_.queue_pairs().destroy(std::move(created->pair));
    return;
  }
  set_deadline(loop_.now() + loop_.options().handshake_timeout);  // the reducer used the time until now
  try {
    offer_pair(std::move(created));
  } catch (const std::exception&) {
    close(Errc::kInternal);
  }
}

void Connection::offer_pair(Result<transport::rdma::PairOffer> created) {
  if (!created) return continue_on_tcp(created.error().text);
  pair_ = std::move(created->pair);
  send(wire::Pair{.address = std::move(created->address)});
  read_header();
}

void Connection::on_paired() {
  wire::Paired paired;
  // The client cannot have received an offer that is not written yet.
  if (has_unwritten_frames()) return close(Errc::kUnexpectedMessage);
  if (!decode_or_close(paired)) return;
  if (paired.ready == 0) return continue_on_tcp(paired.reason);
  ++loop_.counters().lanes_paired;
  pair_reservation_.reset();
  hand_over_to_lane();
}

void Connection::drop_pair() noexcept {
  wants_pair_.store(false, std::memory_order_relaxed);
  loop_.queue_pairs().destroy(std::move(pair_));
  pair_reservation_.reset();
}

void Connection::refuse_tcp(const std::string& reason) {
  refuse({Errc::kMismatch, "reducer serves lanes over RDMA only (--transport rdma): " + reason}, hello_.rank);
}

// Sends PAIR without an address. The connection then goes to its lane over TCP, unless RDMA is required.
void Connection::continue_on_tcp(const std::string& reason) {
  drop_pair();
  if (loop_.rdma().required) return refuse_tcp(reason);
  loop_.log().debug("lane of " + peer() + " uses TCP instead of RDMA: " + reason);
  ++loop_.counters().lanes_on_tcp;
  hand_over_when_written_ = true;
  send(wire::Pair{.reason = reason});
}

}  // namespace sluice::reducer
