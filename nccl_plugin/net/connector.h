#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/connected_streams.h"
#include "nccl_plugin/net/handshake_frame.h"
#include "nccl_plugin/net/listen_handle.h"
#include "nccl_plugin/net/stream_pairing.h"
#include "nccl_plugin/net/stream_settings.h"

namespace sluice::nccl::net {

// Connector opens the streams to a listener: it starts all connects, sends STREAM on each socket, receives
// the answers, and then sets up queue pairs if both sides offer them. Never blocks.
class Connector {
 public:
  // Uses fewer than `streams` when the process runs out of descriptors, and logs that; at least one is
  // necessary. `local_address` as in start_connect(). `settings` must outlive the connector.
  [[nodiscard]] static Result<std::unique_ptr<Connector>> start(const ListenHandle& listen_handle,
                                                                const std::string& local_address,
                                                                unsigned streams,
                                                                const StreamSettings& settings, Nanos now);
  // Returns kWouldBlock until the streams are connected. Other errors are final.
  [[nodiscard]] Result<ConnectedStreams> progress(Nanos now);

  [[nodiscard]] const Secret& secret() const noexcept { return listen_handle_.secret; }
  // True long after the deadlines: the caller has stopped calling progress().
  [[nodiscard]] bool is_abandoned(Nanos now) const noexcept;

 private:
  struct Stream {
    transport::tcp::Socket socket;
    bool stream_sent = false;
    bool answered = false;
    HandshakeFrame answer;
  };

  Connector(const ListenHandle& listen_handle, const StreamSettings& settings, Nanos now);
  // True when both sides offer queue pairs.
  [[nodiscard]] bool rdma_offered() const noexcept;
  // True when one of the sides accepts only RDMA.
  [[nodiscard]] bool rdma_required() const noexcept;
  [[nodiscard]] Result<void> advance(size_t index, Nanos now);
  [[nodiscard]] Result<void> receive_answer(Stream& stream);
  [[nodiscard]] Result<ConnectedStreams> receive_answers(Nanos now);
  [[nodiscard]] ConnectedStreams take_answered_streams();

  const ListenHandle listen_handle_;
  const StreamSettings& settings_;
  const std::string peer_;
  Nanos deadline_;
  std::unique_ptr<transport::tcp::TcpContext> context_;
  std::vector<Stream> streams_;
  size_t streams_sent_ = 0;
  size_t answers_ = 0;
  size_t expected_answers_ = 0;             // from the first answer; 0 before
  std::optional<StreamPairings> pairings_;  // once all answers have arrived
};

}  // namespace sluice::nccl::net
