// Class GatherConnection exchanges data with the other ranks of a session through a reducer, before the ranks
// know each other's addresses (GATHER, protocol.md section 5). All calls block, with deadlines. Errors name
// the reducer, and the ranks that contradict each other or did not arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"
#include "wire/message_codec.h"

namespace sluice::engine {

class GatherConnection {
 public:
  // Connects like connect_and_handshake(). `in_worker`: the reducer runs in rank 0's process. It may serve
  // other sessions while rank 0 has not come to this one, or end with rank 0's last session, so the call
  // retries until `deadline`; later, the end of the connection is that of rank 0. The interrupt of `deadline`
  // ends later calls too. Returns kUnsupported for a reducer that does not know GATHER.
  [[nodiscard]] static Result<GatherConnection> open(const config::Endpoint& reducer,
                                                     const Identity& identity, bool in_worker,
                                                     const Deadline& deadline);

  // Sends this rank's data, at most wire::kMaxGatherData bytes, and returns the data of all ranks. Each round
  // of a connection has its own number. `timeout`: for all ranks to arrive.
  [[nodiscard]] Result<std::vector<std::vector<uint8_t>>> gather(uint8_t round, std::vector<uint8_t> data,
                                                                 Nanos timeout);
  // The same with messages. Errors: also those of a malformed one, with its rank.
  template <typename M>
  [[nodiscard]] Result<std::vector<M>> gather_messages(uint8_t round, const M& own, Nanos timeout) {
    std::vector<uint8_t> data;
    for (const std::byte b : wire::encode_body(own)) data.push_back(std::to_integer<uint8_t>(b));
    auto all = gather(round, std::move(data), timeout);
    if (!all) return tl::unexpected(all.error());
    std::vector<M> messages;
    for (const std::vector<uint8_t>& body : *all) {
      const Status decoded = wire::decode_body(std::as_bytes(std::span(body)), messages.emplace_back());
      if (!decoded.ok())
        return fail(decoded.code(), "rank " + std::to_string(messages.size() - 1) + ": malformed data");
    }
    return messages;
  }
  // Readable between rounds once another rank has left, so that no round will end.
  [[nodiscard]] int fd() const noexcept { return handshake_.socket.fd(); }
  // Then: why, as the reducer says it. Blocks for at most 1 s.
  [[nodiscard]] Error why_ended();
  // Tells the other ranks why this one leaves, unless they learn of another reason first. Returns when the
  // reducer has told them, or after 1 s. No other call may follow.
  void abort(const Error& cause);
  // The local address of the connection, without the port.
  [[nodiscard]] std::string local_address() const;
  // The address at which the connection has reached the reducer, without the port.
  [[nodiscard]] std::string peer_address() const;
  // The rate of the interface with this address, in bits/s; 0: unknown.
  [[nodiscard]] uint64_t link_rate() const;

 private:
  GatherConnection(Handshake handshake, const Identity& identity, int interrupt_fd)
      : handshake_(std::move(handshake)), identity_(identity), interrupt_fd_(interrupt_fd) {}

  Handshake handshake_;
  Identity identity_;
  int interrupt_fd_;
};

}  // namespace sluice::engine
