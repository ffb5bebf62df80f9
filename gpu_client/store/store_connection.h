// Class StoreConnection sends requests about models to one reducer and receives the answers
// (protocol.md section 16). Calls block until their deadline; one thread at a time.
//
// Errors name the reducer. After FAILED the connection is still valid(), and the code is the reducer's. After
// any other error it is not: kReducerLost if it broke or the reducer did not answer, otherwise the error of a
// malformed frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "config/endpoints.h"
#include "core/result.h"
#include "gpu_client/engine/join/handshake.h"
#include "transport/tcp/message_channel.h"
#include "wire/messages.h"

namespace sluice::store_client {

using transport::tcp::MessageChannel;

class StoreConnection {
 public:
  StoreConnection() = default;  // not valid()
  // Connects once. kUnsupported: the reducer keeps no models. kReducerLost: try again.
  [[nodiscard]] static Result<StoreConnection> open(const config::Endpoint& reducer,
                                                    const engine::Identity& identity, Nanos deadline);

  [[nodiscard]] bool valid() const noexcept { return channel_.valid(); }
  [[nodiscard]] const config::Endpoint& reducer() const noexcept { return reducer_; }
  void close() noexcept { channel_ = MessageChannel(transport::tcp::Socket()); }

  template <typename M>
  [[nodiscard]] Result<void> send(const M& message, Nanos deadline) {
    return check(channel_.send(message, deadline), std::string("sending ") + wire::to_string(M::kType));
  }
  template <typename M>
  [[nodiscard]] Result<M> receive(Nanos deadline) {
    M message;
    const std::string doing = std::string("waiting for ") + wire::to_string(M::kType);
    if (auto received = receive_frame(M::kType, deadline, doing); !received)
      return tl::unexpected(received.error());
    if (auto decoded = check(channel_.decode(message), doing); !decoded)
      return tl::unexpected(decoded.error());
    return message;
  }
  // Whether an answer, or the end of the connection, is there by the deadline.
  [[nodiscard]] bool has_answer(Nanos deadline) const { return channel_.wait(deadline) != Errc::kTimeout; }
  [[nodiscard]] Result<void> send_pieces(uint64_t bytes, const MessageChannel::Fill& fill) {
    return check(channel_.send_pieces(bytes, fill), "sending data");
  }
  [[nodiscard]] Result<void> receive_pieces(uint64_t bytes, const MessageChannel::Use& use) {
    return check(channel_.receive_pieces(bytes, use), "receiving data");
  }

  // Sends MODEL_QUERY with `body` and returns the JSON of the answer.
  [[nodiscard]] Result<std::string> query(wire::ModelQueryKind kind, const std::string& name,
                                          const std::string& body, Nanos deadline);
  // Closes the connection, on which an answer is missing.
  [[nodiscard]] tl::unexpected<Error> give_up(const std::string& doing);
  // Closes the connection because of an answer that contradicts the request.
  [[nodiscard]] tl::unexpected<Error> malformed(Errc code, const std::string& text);

 private:
  [[nodiscard]] Result<void> check(Status status, const std::string& doing);
  [[nodiscard]] tl::unexpected<Error> peer_error(Errc code, const std::string& text) const;
  // Receives a frame of this type. FAILED, REFUSED and ABORT become their errors.
  [[nodiscard]] Result<void> receive_frame(wire::FrameType expected, Nanos deadline,
                                           const std::string& doing);

  config::Endpoint reducer_;
  std::string name_;
  MessageChannel channel_{transport::tcp::Socket()};
};

// Whether a later attempt, maybe at another reducer, may succeed.
[[nodiscard]] bool is_retryable(Errc code) noexcept;

}  // namespace sluice::store_client
