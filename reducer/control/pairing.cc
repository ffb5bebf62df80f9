// What an attached lane connection goes over, where RDMA is in force: PAIR there and back, PAIRED.
// PROTOCOL.md section 5.
#include "transport/rdma/pairing.h"

#include <fcntl.h>

#include <exception>
#include <span>
#include <utility>

#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/control/connection.h"

namespace sluice::reducer {
namespace {

using transport::rdma::PairOffer;

// Joined before the answer: the client may send as soon as it has it.
Result<PairOffer> joined_pair(int connection, const transport::rdma::RailChoice& choice,
                              std::span<const uint8_t> address, const transport::rdma::PairMemory& memory) {
  auto offer = transport::rdma::offer_pair(connection, choice, memory);
  if (!offer) return offer;
  const auto joined = transport::rdma::join_pair(*offer->pair, connection, std::as_bytes(address));
  if (!joined) return tl::unexpected(joined.error());
  return offer;
}

}  // namespace

void Connection::on_pair() {
  wire::Pair theirs;
  if (header_.type != wire::FrameType::kPair || pair_is_made_) return close(Errc::kUnexpectedMessage);
  if (!take(theirs)) return;
  if (theirs.address.empty()) return go_without_pair(theirs.why);
  const auto address = std::as_bytes(std::span(theirs.address));
  if (auto checked = transport::rdma::check_pair_address(socket_.fd(), address); !checked)
    return go_without_pair(checked.error().text);
  pairing_ = conductor_.take_pairing();
  if (!pairing_) return go_without_pair("too many queue pairs are being agreed on");
  const Session* const session = conductor_.find_session(hello_.session);
  if (session == nullptr || session->handle() != handle_) return go_without_pair("the session has ended");
  transport::tcp::Socket same(::fcntl(socket_.fd(), F_DUPFD_CLOEXEC, 0));
  if (!same.valid()) return go_without_pair("no descriptor is left");
  pair_is_made_ = true;
  conductor_.make_pair(shared_from_this(), std::move(same), std::move(theirs.address),
                       session->pair_memory(hello_.rank, hello_.lane));
}

void Conductor::make_pair(std::shared_ptr<Connection> asker, transport::tcp::Socket socket,
                          std::vector<uint8_t> address, transport::rdma::PairMemory memory) {
  asio::post(*pairing_thread_, [this, asker = std::move(asker), socket = std::move(socket),
                                address = std::move(address), memory = std::move(memory)]() mutable {
    Result<PairOffer> made = fail(Errc::kMemoryLimit, "out of memory");
    try {
      made = joined_pair(socket.fd(), rdma_.choice, address, memory);
    } catch (const std::exception&) {  // it says so already
    }
    // Here nothing of the asker's may end, which its own thread knows.
    asio::post(io_, [asker = std::move(asker), made = std::move(made)]() mutable {
      asker->pair_made(std::move(made));
    });
  });
}

void Connection::pair_made(Result<PairOffer> made) noexcept {
  pair_is_made_ = false;
  if (state_ != State::kPairing) return;  // it has ended meanwhile
  try {
    take_pair(std::move(made));
  } catch (const std::exception&) {
    close(Errc::kInternal);
  }
}

void Connection::take_pair(Result<PairOffer> made) {
  if (!made) return go_without_pair(made.error().text);
  pair_ = std::move(made->pair);
  wire::Pair ours;
  ours.address = std::move(made->address);
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
