#include "reducer/control/connection/queue_pair_factory.h"

#include <exception>
#include <span>
#include <utility>

#include "reducer/control/connection/connection.h"

namespace sluice::reducer {
namespace {

using transport::rdma::PairOffer;

// At most 0.5 GiB of locked memory beside the slots, which no session's reservation counts. A rank opens its
// lanes one after the other.
constexpr uint32_t kMaxReservedPairs = 512;

// Joins the pair before the address is sent: the client may send data as soon as it has the address.
Result<PairOffer> create_joined_pair(const transport::rdma::ConnectionGids& ends,
                                     const transport::rdma::RailChoice& choice,
                                     std::span<const uint8_t> address,
                                     const transport::rdma::PairMemory& memory) {
  auto offer = transport::rdma::offer_pair(ends, choice, memory);
  if (!offer) return offer;
  const auto joined = transport::rdma::connect_pair(*offer->pair, ends, std::as_bytes(address));
  if (!joined) return tl::unexpected(joined.error());
  return offer;
}

}  // namespace

QueuePairFactory::QueuePairFactory(asio::io_context& io, const RdmaOffer& offer) : io_(io), offer_(offer) {
  if (!offer_.rails.names.empty()) thread_.emplace(1);
}

std::shared_ptr<void> QueuePairFactory::reserve() {
  if (*reserved_ >= kMaxReservedPairs) return nullptr;
  ++*reserved_;
  return {reserved_.get(), [reserved = reserved_](uint32_t* count) { --*count; }};
}

void QueuePairFactory::create(std::shared_ptr<Connection> requester,
                              const transport::rdma::ConnectionGids& ends, std::vector<uint8_t> address,
                              transport::rdma::PairMemory memory) {
  asio::post(*thread_, [this, requester = std::move(requester), ends, address = std::move(address),
                        memory = std::move(memory)]() mutable {
    try {
      Result<PairOffer> created = fail(Errc::kShutdown, "the connection no longer needs a queue pair");
      if (requester->wants_pair()) created = create_joined_pair(ends, offer_.choice, address, memory);
      // Only the control thread may end the connection, so its last reference moves there.
      asio::post(io_, [requester = std::move(requester), created = std::move(created)]() mutable {
        requester->on_pair_created(std::move(created));
      });
    } catch (const std::exception&) {  // out of memory: the connection's deadline ends it
    }
  });
}

void QueuePairFactory::destroy(std::unique_ptr<transport::tcp::AttachedChannel> pair) noexcept {
  if (!pair || !thread_) return;  // without RDMA: a pipe, which is destroyed here
  try {
    asio::post(*thread_, [pair = std::move(pair)]() mutable { pair.reset(); });
  } catch (const std::exception&) {  // out of memory: destroyed here
  }
}

}  // namespace sluice::reducer
