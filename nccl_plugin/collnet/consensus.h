#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/collnet/peer_set.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

// Consensus makes NCCL's CollNet connect succeed on all nodes of a communicator or fail on all: NCCL hangs
// when only some nodes fail. A rank is a node's place in NCCL's array of handles, not an NCCL rank. The
// reducers cannot decide, because one of them may be the cause of the failure. The first node in rank order
// is the coordinator; the other nodes connect to the address in its handle. Then, in any number of rounds,
// each node votes and the coordinator sends the common decision. Blocks, with deadlines.
class Consensus {
 public:
  // Connects the nodes. `listener` is this node's. It stays open while the node waits, which shows the
  // coordinator, which connects to it, that the node is alive. All nodes that the coordinator reached get the
  // same error; the others fail by their own timeout.
  [[nodiscard]] static Result<Consensus> connect(PeerSet peers, transport::tcp::Socket listener,
                                                 ConnectTimeouts timeouts);

  // Runs one round. Succeeds when all nodes vote success, and returns the coordinator's `announcement`, which
  // the other nodes leave empty. Otherwise returns the error of the lowest rank that voted no or sent no
  // vote, with the name of its node, the same on all nodes. The coordinator waits for the votes until
  // `deadline`, the other nodes kDecisionGrace longer for the decision.
  [[nodiscard]] Result<std::string> decide(const Result<void>& vote, Nanos deadline,
                                           const std::string& announcement = {});

  // Call after the last round. The coordinator waits until all nodes have the decision, because closing its
  // sockets earlier could destroy a decision in transit.
  void finish(Nanos deadline) noexcept;

 private:
  struct Message {  // 16 bytes on the network, then the text
    enum class Kind : uint8_t { kHello = 1, kVote = 2, kDecision = 3, kConfirmation = 4 };
    Kind kind = Kind::kHello;
    Errc code = Errc::kOk;
    uint32_t rank = 0;
    std::string text;
  };

  explicit Consensus(PeerSet peers) : peers_(std::move(peers)), sockets_(peers_.nodes.size()) {}
  [[nodiscard]] bool is_coordinator() const noexcept { return peers_.rank == 0; }
  [[nodiscard]] std::string name(uint32_t rank) const { return peers_.name(rank); }
  [[nodiscard]] std::string coordinator_name() const { return name(0) + ", the coordinator"; }
  // `wait_until`: when this node stops waiting for the others.
  [[nodiscard]] Result<void> connect_to_coordinator(Nanos deadline, Nanos wait_until);
  [[nodiscard]] Result<std::string> receive_decision(Nanos deadline);
  [[nodiscard]] Result<std::string> coordinate_round(Result<std::string> outcome, Nanos deadline);
  void send_decision(const Result<std::string>& outcome, Nanos deadline) noexcept;
  [[nodiscard]] static Status send(const transport::tcp::Socket& to, const Message& message,
                                   Nanos deadline) noexcept;
  [[nodiscard]] static Status receive(const transport::tcp::Socket& from, Message& message, Nanos deadline);

  PeerSet peers_;
  std::vector<transport::tcp::Socket>
      sockets_;  // coordinator: by rank, [0] unused; other nodes: [0] leads to it
};

}  // namespace sluice::nccl::collnet
