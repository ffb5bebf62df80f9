// The sending end: keeps the peer's GRANTs and the user's messages, brings them together by tag, and cuts
// messages into PIECEs for whichever stream has least to send.
#pragma once

#include <array>
#include <memory>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/request.h"

namespace sluice::nccl::net {

class SendComm final : public StreamGroup {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SendComm>> make(GreetedStreams greeted);

  // As net::isend().
  [[nodiscard]] Status send(const std::byte* data, size_t bytes, int tag, Request** request) noexcept;

 private:
  struct Message : Request {
    const std::byte* data = nullptr;
    int tag = 0;
    uint64_t order = 0;  // of isend
    uint64_t sequence = 0;
    uint16_t slot = 0;
    bool waits = false;  // for a GRANT
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t next_piece = 0;
    uint32_t unsent_pieces = 0;  // put and not given back
  };
  struct Grant {
    enum class State : uint8_t { kNone, kOpen, kUsed } state = State::kNone;
    int tag = 0;
    uint64_t sequence = 0;
    uint64_t bytes = 0;
  };

  SendComm() noexcept;
  transport::Placement header(Stream& stream, const wire::FrameHeader& h) noexcept override;
  void frame(const wire::FrameHeader& h) noexcept override;
  void sent(Stream& stream, transport::Cookie cookie) noexcept override;
  void stream_ended() noexcept override;

  void use_grant(uint16_t slot, Message& message) noexcept;
  void tell_too_long(const Grant& grant, uint16_t slot, const Message& message) noexcept;
  void put_pieces() noexcept;
  [[nodiscard]] Stream* least_loaded() noexcept;
  [[nodiscard]] bool put_next_piece(Message& message, Stream& stream) noexcept;

  std::array<Message, abi::kMaxRequests> messages_;
  std::array<Grant, abi::kMaxRequests> grants_;
  uint64_t next_order_ = 0;
  uint64_t next_grant_ = 0;
  unsigned open_grants_ = 0;  // not used yet
  unsigned waiting_ = 0;      // messages without a grant
  unsigned unfinished_ = 0;   // messages not wholly handed to the network
  bool peer_ended_ = false;
  // Messages with a grant and with pieces left to put, in order: a ring.
  std::array<uint8_t, abi::kMaxRequests> sending_{};
  unsigned sending_front_ = 0;
  unsigned sending_count_ = 0;
};

}  // namespace sluice::nccl::net
