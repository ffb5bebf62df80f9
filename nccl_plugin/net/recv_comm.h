#pragma once

#include <array>
#include <memory>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/request.h"

namespace sluice::nccl::net {

// RecvComm is the receiving end of a pair. Each open receive is a granted slot, and pieces are received
// directly into the user's memory. Every piece is checked against its grant before a byte is written.
class RecvComm final : public StreamGroup {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RecvComm>> make(ConnectedStreams connected);

  // As net::irecv().
  [[nodiscard]] Status receive(std::byte* data, size_t bytes, int tag, Request** request) noexcept;

 private:
  struct Slot : Request {
    std::byte* data = nullptr;
    uint64_t granted = 0;
    uint64_t sequence = 0;
    bool has_piece = false;  // the first piece has set the next three fields
    uint64_t message_bytes = 0;
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t completed = 0;  // pieces that have arrived completely
    // One bit per piece that has started; cleared up to `pieces` when the first piece arrives.
    std::array<uint64_t, kMaxPieces / 64> started_pieces;
  };

  RecvComm();
  transport::ReceiveTarget accept_header(Stream& stream, const wire::FrameHeader& h) noexcept override;
  void complete_frame(const wire::FrameHeader& h) noexcept override;
  void complete_send(Stream& /*stream*/, transport::Cookie /*cookie*/) noexcept override {}
  void on_stream_end() noexcept override;

  [[nodiscard]] transport::ReceiveTarget start_message(Slot& slot, const wire::FrameHeader& h) noexcept;

  std::array<Slot, abi::kMaxRequests> slots_;
  uint64_t next_sequence_ = 0;
  unsigned unfinished_ = 0;  // receives whose message is incomplete
};

}  // namespace sluice::nccl::net
