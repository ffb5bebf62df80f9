// What an attached lane connection goes over, where RDMA is in force: PAIR there and back, PAIRED.
// PROTOCOL.md section 5.
#include "transport/rdma/pairing.h"

#include <span>
#include <utility>

#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/control/connection.h"

namespace sluice::reducer {

void Connection::on_pair() {
  wire::Pair theirs;
  if (header_.type != wire::FrameType::kPair) return close(Errc::kUnexpectedMessage);
  if (!take(theirs)) return;
  if (theirs.address.empty()) return go_without_pair(theirs.why);
  const auto address = std::as_bytes(std::span(theirs.address));
  if (auto checked = transport::rdma::check_pair_address(socket_.fd(), address); !checked)
    return go_without_pair(checked.error().text);
  pairing_ = conductor_.take_pairing();
  if (!pairing_) return go_without_pair("too many queue pairs are being agreed on");
  const Session* const session = conductor_.find_session(hello_.session);
  if (session == nullptr || session->handle() != handle_) return go_without_pair("the session has ended");
  auto offer = transport::rdma::offer_pair(socket_.fd(), conductor_.rdma().choice,
                                           session->pair_memory(hello_.rank, hello_.lane));
  if (!offer) return go_without_pair(offer.error().text);
  // Joined before the answer: the client may send as soon as it has it.
  const auto joined = transport::rdma::join_pair(*offer->pair, socket_.fd(), address);
  if (!joined) return go_without_pair(joined.error().text);
  pair_ = std::move(offer->pair);
  wire::Pair ours;
  ours.address = std::move(offer->address);
  send(ours);
}

void Connection::refuse_tcp(const std::string& why) {
  refuse({Errc::kMismatch, "lanes are served over RDMA alone here (--transport): " + why}, hello_.rank);
}

// It ends here, or goes to its lane once the answer is written.
void Connection::go_without_pair(const std::string& why) {
  pair_.reset();
  pairing_.reset();
  if (conductor_.rdma().only) return refuse_tcp(why);
  log::debug(peer_ + ": a lane goes over TCP: " + why);
  ++conductor_.pair_counts().on_tcp;
  hand_over_ = true;
  wire::Pair none;
  none.why = why;
  send(none);
}

void Connection::on_paired() {
  wire::Paired paired;
  // The answer is not written: nobody can have it.
  if (header_.type != wire::FrameType::kPaired || writing_) return close(Errc::kUnexpectedMessage);
  if (!take(paired)) return;
  if (paired.ready == 0) return go_without_pair(paired.why);
  ++conductor_.pair_counts().paired;
  pairing_.reset();
  hand_over();
}

}  // namespace sluice::reducer
