// The receiving end: each open receive is a granted slot, pieces land in the user's memory, and what a PIECE
// says is held against its grant before one byte is written.
#pragma once

#include <array>
#include <memory>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/request.h"

namespace sluice::nccl::net {

class RecvComm final : public StreamGroup {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RecvComm>> make(GreetedStreams greeted);

  // As net::irecv().
  [[nodiscard]] Status receive(std::byte* data, size_t bytes, int tag, Request** request) noexcept;

 private:
  struct Slot : Request {
    std::byte* data = nullptr;
    uint64_t granted = 0;
    uint64_t sequence = 0;
    bool begun = false;  // the first piece has told the next three
    uint64_t message_bytes = 0;
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t arrived = 0;  // whole
    std::array<uint64_t, kMaxPieces / 64>
        begun_pieces;  // bits; written as far as `pieces` when the first one comes
  };

  RecvComm() noexcept;
  transport::Placement header(Stream& stream, const wire::FrameHeader& h) noexcept override;
  void frame(const wire::FrameHeader& h) noexcept override;
  void sent(Stream& /*stream*/, transport::Cookie /*cookie*/) noexcept override {}
  void stream_ended() noexcept override;

  [[nodiscard]] transport::Placement begin_message(Slot& slot, const wire::FrameHeader& h) noexcept;

  std::array<Slot, abi::kMaxRequests> slots_;
  uint64_t next_sequence_ = 0;
  unsigned unfinished_ = 0;  // receives without their whole message
};

}  // namespace sluice::nccl::net
