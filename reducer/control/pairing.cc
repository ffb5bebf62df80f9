// What an attached lane connection goes over, where RDMA is in force: PAIR there and back, PAIRED.
// PROTOCOL.md section 5.
#include "transport/rdma/pairing.h"

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
Result<PairOffer> joined_pair(const transport::rdma::ConnectionEnds& ends,
                              const transport::rdma::RailChoice& choice, std::span<const uint8_t> address,
                              const transport::rdma::PairMemory& memory) {
  auto offer = transport::rdma::offer_pair(ends, choice, memory);
  if (!offer) return offer;
  const auto joined = transport::rdma::join_pair(*offer->pair, ends, std::as_bytes(address));
  if (!joined) return tl::unexpected(joined.error());
  return offer;
}

}  // namespace

void Connection::on_pair() {
  wire::Pair theirs;
  if (header_.type != wire::FrameType::kPair || making_pair_) return close(Errc::kUnexpectedMessage);
  if (!take(theirs)) return;
  if (theirs.address.empty()) return go_without_pair(theirs.why);
  const auto ends = transport::rdma::ends_of(socket_.fd());
  if (!ends) return close(ends.error().code);
  const auto address = std::as_bytes(std::span(theirs.address));
  if (auto checked = transport::rdma::check_pair_address(*ends, address); !checked)
    return go_without_pair(checked.error().text);
  pairing_ = conductor_.take_pairing();
  if (!pairing_) return go_without_pair("too many queue pairs are being agreed on");
  const Session* const session = conductor_.find_session(hello_.session);
  if (session == nullptr || session->handle() != handle_) return go_without_pair("the session has ended");
  making_pair_ = true;
  wants_pair_.store(true, std::memory_order_relaxed);
  conductor_.make_pair(shared_from_this(), *ends, std::move(theirs.address),
                       session->pair_memory(hello_.rank, hello_.lane));
}

// One thread, so one device is asked for one thing at a time. Whoever asks may have given up by then.
void Conductor::make_pair(std::shared_ptr<Connection> asker, const transport::rdma::ConnectionEnds& ends,
                          std::vector<uint8_t> address, transport::rdma::PairMemory memory) {
  asio::post(*pairing_thread_, [this, asker = std::move(asker), ends, address = std::move(address),
                                memory = std::move(memory)]() mutable {
    try {
      Result<PairOffer> made = fail(Errc::kShutdown, "nobody waits for it");
      if (asker->wants_pair()) made = joined_pair(ends, rdma_.choice, address, memory);
      // Here nothing of the asker's may end, which its own thread knows.
      asio::post(io_, [asker = std::move(asker), made = std::move(made)]() mutable {
        asker->pair_made(std::move(made));
      });
    } catch (const std::exception&) {  // out of memory: the asker's deadline ends it
    }
  });
}

void Conductor::unmake_pair(std::unique_ptr<transport::tcp::Companion> pair) noexcept {
  if (!pair) return;
  try {
    asio::post(*pairing_thread_, [pair = std::move(pair)]() mutable { pair.reset(); });
  } catch (const std::exception&) {  // no memory to put it off
  }
}

void Connection::drop_pair() noexcept {
  wants_pair_.store(false, std::memory_order_relaxed);
  conductor_.unmake_pair(std::move(pair_));
  pairing_.reset();
}

void Connection::pair_made(Result<PairOffer> made) noexcept {
  making_pair_ = false;
  if (state_ != State::kPairing) {  // it has ended meanwhile
    if (made) conductor_.unmake_pair(std::move(made->pair));
    return;
  }
  deadline_ = conductor_.now() + conductor_.options().handshake_timeout;  // ours was the time until now
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
  read_header();
}

void Connection::refuse_tcp(const std::string& why) {
  refuse({Errc::kMismatch, "lanes are served over RDMA alone here (--transport): " + why}, hello_.rank);
}

// It ends here, or goes to its lane once the answer is written.
void Connection::go_without_pair(const std::string& why) {
  drop_pair();
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
