// Class QueuePairFactory creates and destroys the queue pairs of lane connections on a separate thread.
//
// Registering memory takes milliseconds, which the control loop must not wait for. A single thread sends one
// request at a time to the devices. Control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reducer/control/asio.h"
#include "transport/rdma/pairing.h"

namespace sluice::reducer {

class Connection;

// The RDMA devices and settings of the reducer's lanes.
struct RdmaOffer {
  bool required = false;           // no lane is served over TCP
  transport::rdma::Rails rails;    // devices, held open; none: RDMA is not offered
  std::string unavailable_reason;  // why there are no rails; empty: not requested
  transport::rdma::RailChoice choice;
};

class QueuePairFactory {
 public:
  // Results are posted to `io`. Both must outlive the factory.
  QueuePairFactory(asio::io_context& io, const RdmaOffer& offer);

  // Limits the queue pairs between PAIR and PAIRED: one of them while the returned pointer is held. Null: too
  // many.
  [[nodiscard]] std::shared_ptr<void> reserve();
  // Creates a queue pair for a connection with these ends and joins it with the pair at `address`. Then calls
  // requester->on_pair_created() on the control thread.
  void create(std::shared_ptr<Connection> requester, const transport::rdma::ConnectionGids& ends,
              std::vector<uint8_t> address, transport::rdma::PairMemory memory);
  // `pair` may be null.
  void destroy(std::unique_ptr<transport::tcp::AttachedChannel> pair) noexcept;

 private:
  asio::io_context& io_;
  const RdmaOffer& offer_;
  std::shared_ptr<uint32_t> reserved_ = std::make_shared<uint32_t>(0);  // outlives the factory
  std::optional<asio::thread_pool> thread_;  // destroyed before io_, to which it posts
};

}  // namespace sluice::reducer
