#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/collnet/peer_set.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

// Rendezvous accepts connections at the coordinator until every other node has identified itself. Connections
// of other programs and incomplete messages are dropped, and while too many have sent nothing, the oldest of
// them. It also encodes the headers of all messages between
// the nodes (protocol.md section 14).
class Rendezvous {
 public:
  // magic u32 | kind u8 | 0 | code u16 | rank u32 | text_bytes u32
  static constexpr size_t kHeaderBytes = 16;
  static constexpr size_t kMaxTextBytes = 4096;
  static constexpr uint8_t kHello = 1;
  struct Header {
    uint8_t kind = 0;
    uint16_t code = 0;
    uint32_t rank = 0;
    uint32_t text_bytes = 0;
  };
  static void encode_header(std::span<std::byte, kHeaderBytes> out, const Header& header) noexcept;
  [[nodiscard]] static bool decode_header(std::span<const std::byte, kHeaderBytes> in,
                                          Header& header) noexcept;
  // session 16 | milliseconds u32 for which the node still waits for the others | common text
  [[nodiscard]] static std::string encode_hello(const PeerSet& peers, Nanos wait);

  struct Node {
    transport::tcp::Socket socket;  // not valid: the node has not connected
    std::string common_text;
  };

  // `peers` must outlive this.
  Rendezvous(const PeerSet& peers, transport::tcp::Socket listener, ConnectTimeouts timeouts)
      : peers_(peers), timeouts_(timeouts), listener_(std::move(listener)), nodes_(peers.nodes.size()) {}
  // Waits until all nodes have connected. An error names the node that is late, lost or unreachable; nodes()
  // then has the nodes that did connect.
  [[nodiscard]] Result<void> run();
  [[nodiscard]] std::vector<Node>& nodes() noexcept { return nodes_; }

 private:
  // An accepted connection that has not identified itself.
  struct PendingConnection {
    transport::tcp::Socket socket;
    std::vector<std::byte> bytes;
    Nanos deadline = 0;
  };
  [[nodiscard]] Result<void> wait(Nanos until);
  // Connects to the ports of missing nodes. The kernel of a live node accepts the connection although the
  // node does not answer, and closes it when the node gives up or its process ends.
  [[nodiscard]] Result<void> probe_missing();
  void accept_connections(Nanos now);
  [[nodiscard]] size_t most_pending() const noexcept;
  // Returns true when the connection is to be removed: it has become a node, or it is invalid.
  [[nodiscard]] bool read_hello(PendingConnection& pending, Nanos now);
  void add_node(uint32_t rank, PendingConnection& pending, Nanos now);
  [[nodiscard]] bool is_complete() const noexcept { return connected_ + 1 == nodes_.size(); }
  [[nodiscard]] uint32_t first_missing() const noexcept;
  [[nodiscard]] tl::unexpected<Error> timeout_error(uint32_t rank, const char* text) const;

  const PeerSet& peers_;
  const ConnectTimeouts timeouts_;
  const transport::tcp::Socket listener_;
  std::vector<Node> nodes_;
  std::vector<transport::tcp::Socket> probes_;  // by rank; empty before the first probe_missing()
  std::deque<PendingConnection> pending_;       // the oldest first
  bool lacks_descriptors_ = false;
  size_t connected_ = 0;
  uint32_t last_ = 0;  // the node that connected last; 0: the coordinator itself
  Nanos begin_ = 0;
  Nanos deadline_ = 0;
};

}  // namespace sluice::nccl::collnet
