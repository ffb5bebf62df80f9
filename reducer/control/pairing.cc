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
  auto offer = transport::rdma::offer_pair(socket_.fd());
  if (!offer) return go_without_pair(offer.error().text);
  // Joined before the answer: the client may send as soon as it has it.
  const auto joined =
      transport::rdma::join_pair(*offer->pair, socket_.fd(), std::as_bytes(std::span(theirs.address)));
  if (!joined) return go_without_pair(joined.error().text);
  pair_ = std::move(offer->pair);
  wire::Pair ours;
  for (const std::byte b : offer->address) ours.address.push_back(std::to_integer<uint8_t>(b));
  send(ours);
}

// It ends here, or goes to its lane once the answer is written.
void Connection::go_without_pair(const std::string& why) {
  if (conductor_.rdma().only)
    return refuse({Errc::kUnsupported, "lanes are served over RDMA alone here (--transport): " + why},
                  hello_.rank);
  log::debug(peer_ + ": a lane goes over TCP: " + why);
  ++conductor_.pair_counts().on_tcp;
  hand_over_ = true;
  wire::Pair none;
  none.why = why;
  send(none);
}

void Connection::on_paired() {
  wire::Paired paired;
  // A peer that speaks before it was answered.
  if (header_.type != wire::FrameType::kPaired || writing_) return close(Errc::kUnexpectedMessage);
  if (!take(paired)) return;
  if (paired.ready == 0) {
    pair_.reset();
    if (conductor_.rdma().only) return close(Errc::kUnsupported);
    log::debug(peer_ + ": a lane goes over TCP: " + paired.why);
    ++conductor_.pair_counts().on_tcp;
  } else {
    ++conductor_.pair_counts().paired;
  }
  hand_over();
}

}  // namespace sluice::reducer
