#pragma once

#include <array>
#include <memory>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/request.h"

namespace sluice::nccl::net {

// SendComm is the sending end of a pair. It matches the peer's GRANTs with the user's messages by tag, and
// sends each message in PIECEs over the least loaded streams.
class SendComm final : public StreamGroup {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SendComm>> make(ConnectedStreams connected);

  // As net::isend().
  [[nodiscard]] Status send(const std::byte* data, size_t bytes, int tag, Request** request) noexcept;

 private:
  struct Message : Request {
    const std::byte* data = nullptr;
    int tag = 0;
    uint64_t order = 0;  // of the isend() calls
    uint64_t sequence = 0;
    uint16_t slot = 0;
    bool awaits_grant = false;
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t next_piece = 0;
    uint32_t unsent_pieces = 0;  // put and not completed
  };
  struct Grant {
    enum class State : uint8_t { kNone, kOpen, kUsed } state = State::kNone;
    int tag = 0;
    uint64_t sequence = 0;
    uint64_t bytes = 0;
  };

  SendComm();
  transport::ReceiveTarget accept_header(Stream& stream, const wire::FrameHeader& h) noexcept override;
  void complete_frame(const wire::FrameHeader& h) noexcept override;
  void complete_send(Stream& stream, transport::Cookie cookie) noexcept override;
  void on_stream_end() noexcept override;

  void use_grant(uint16_t slot, Message& message) noexcept;
  void reject_too_long(const Grant& grant, uint16_t slot, const Message& message) noexcept;
  void put_pieces() noexcept;
  [[nodiscard]] Stream* least_loaded() noexcept;
  [[nodiscard]] bool put_next_piece(Message& message, Stream& stream) noexcept;

  std::array<Message, abi::kMaxRequests> messages_;
  std::array<Grant, abi::kMaxRequests> grants_;
  uint64_t next_order_ = 0;
  uint64_t next_grant_ = 0;
  unsigned open_grants_ = 0;  // not used yet
  unsigned waiting_ = 0;      // messages that await a grant
  unsigned unfinished_ = 0;   // messages not completely handed to the network
  bool peer_ended_ = false;
  // A ring of the messages that have a grant and pieces left to put, in order.
  std::array<uint8_t, abi::kMaxRequests> sending_{};
  unsigned sending_front_ = 0;
  unsigned sending_count_ = 0;
};

}  // namespace sluice::nccl::net
