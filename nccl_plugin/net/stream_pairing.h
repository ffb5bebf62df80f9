// How greeted streams get queue pairs: on each PAIR there, PAIR back, PAIRED there (PROTOCOL.md section 13).
// Never blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "nccl_plugin/net/greeted_streams.h"
#include "nccl_plugin/net/greeting.h"
#include "transport/rdma/pairing.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::net {

enum class End : uint8_t { kSender, kReceiver };

class StreamPairing {
 public:
  StreamPairing(transport::tcp::Socket socket, End end, const transport::rdma::RailChoice& choice)
      : socket_(std::move(socket)), end_(end), choice_(choice) {}

  // kWouldBlock until it is settled what the stream goes over. Any other error: the peer is gone, or has said
  // what makes no sense.
  [[nodiscard]] Result<void> progress(Nanos now);
  // Why it goes over TCP; empty: it has its pair.
  [[nodiscard]] const std::string& obstacle() const noexcept { return obstacle_; }
  [[nodiscard]] transport::tcp::Socket release() noexcept { return std::move(socket_); }

 private:
  enum class Step : uint8_t { kBegin, kHearPair, kProve, kHearPaired, kSettled };

  template <typename Message>
  [[nodiscard]] Result<void> say(const Message& message);
  template <typename Message>
  [[nodiscard]] Result<void> hear(Message& out);
  // Of a sender.
  [[nodiscard]] Result<void> offer();
  [[nodiscard]] Result<void> join(Nanos now);
  [[nodiscard]] Result<void> prove(Nanos now);
  [[nodiscard]] Result<void> settle();
  // Of a receiver.
  [[nodiscard]] Result<void> answer();
  [[nodiscard]] Result<void> join_with(const wire::Pair& theirs, std::vector<uint8_t>& address);
  [[nodiscard]] Result<void> hear_paired();

  void go_without(std::string why);

  transport::tcp::Socket socket_;
  const End end_;
  const transport::rdma::RailChoice& choice_;
  Step step_ = Step::kBegin;
  FrameBytes heard_;
  std::unique_ptr<transport::tcp::Companion> pair_;
  Nanos proof_since_ = 0;
  std::string obstacle_;
};

// All streams of a comm. What is found of one is found of the others at the same time.
class StreamPairings {
 public:
  // `terms` outlives it. `alone`: either end takes streams over RDMA alone.
  StreamPairings(GreetedStreams greeted, End end, const transport::rdma::RailChoice& choice, bool alone,
                 Nanos now);

  // kWouldBlock until all are settled; kUnsupported where one has no pair and must have one; kTimeout.
  [[nodiscard]] Result<GreetedStreams> progress(Nanos now);

 private:
  [[nodiscard]] Result<GreetedStreams> settled();

  GreetedStreams greeted_;
  const bool alone_;
  const Nanos deadline_;
  std::vector<StreamPairing> streams_;
};

}  // namespace sluice::nccl::net
