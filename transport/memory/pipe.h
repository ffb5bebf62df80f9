// Class Pipe carries the frames of one direction between two endpoints of this process. Struct Connection is
// the two pipes of a connection, and class PipeEnd owns one side of it until an endpoint takes that side.
//
// Ownership. The sender owns the ring of frames and, by the contract of transport.h, every payload until
// on_sent(). The receiver reads a payload in the sender's buffer, while it holds a claim:
//
//   * receiver: sets the claim; if the state is closed gives up, otherwise copies the payload and counts the
//     frame as received; clears the claim
//   * sender: sets the state to closed; once there is no claim, completes the rest with the reason
//
// All four accesses are sequentially consistent, so the receiver sees the close or the sender sees the claim.
// A closed sender completes its puts in the first poll that finds no claim: no payload is read after its
// on_sent(), and each frame is either received and completed with kOk, or neither. A claim lasts for one copy
// and never across a callback, so a thread that drives both sides never waits for itself.
//
// Threads. The thread of the sending endpoint calls the functions of the sender, the thread of the receiving
// endpoint those of the receiver. No function blocks or locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/units.h"
#include "transport/memory/waker.h"
#include "transport/queued_frame.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::memory {

class Pipe {
 public:
  enum class State : uint8_t {
    kOpen,
    kEnded,   // the sender puts no more frames; the receiver still receives the accepted ones
    kClosed,  // the receiver must not touch the frames
    kReset,   // the same, by an error
  };

  // ---- sender ----
  // Makes the ring. Before the first try_put().
  void open(size_t capacity) { frames_.resize(capacity); }
  // False: the ring is full.
  [[nodiscard]] bool try_put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                             std::span<const std::byte> payload, Cookie cookie) noexcept {
    const uint64_t accepted = accepted_.load(std::memory_order_relaxed);
    if (accepted - completed_ == frames_.size()) return false;
    at(accepted).set(header, extensions, payload, cookie);
    accepted_.store(accepted + 1, std::memory_order_seq_cst);
    return true;
  }
  // The oldest frame that the receiver has received and that was not returned before; null: none. Valid until
  // the next try_put().
  [[nodiscard]] const QueuedFrame* pop_received() noexcept {
    if (completed_ == seen_received_) seen_received_ = received_.load(std::memory_order_seq_cst);
    return completed_ == seen_received_ ? nullptr : &at(completed_++);
  }
  // The same for any accepted frame. Only after close(), once has_claim() was false.
  [[nodiscard]] const QueuedFrame* pop() noexcept {
    return completed_ == accepted_.load(std::memory_order_relaxed) ? nullptr : &at(completed_++);
  }
  void end() noexcept { state_.store(State::kEnded, std::memory_order_seq_cst); }
  void close(bool reset) noexcept {
    state_.store(reset ? State::kReset : State::kClosed, std::memory_order_seq_cst);
  }
  // True while the receiver may read a payload.
  [[nodiscard]] bool has_claim() const noexcept { return claimed_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool all_completed() const noexcept {
    return completed_ == accepted_.load(std::memory_order_relaxed);
  }

  // ---- receiver ----
  // The next frame to receive; null: none. Its head stays valid until receive_claimed().
  [[nodiscard]] const QueuedFrame* front() noexcept {
    const uint64_t received = received_.load(std::memory_order_relaxed);
    if (is_closed(state()) || received == accepted_.load(std::memory_order_seq_cst)) return nullptr;
    return &at(received);
  }
  // Claims the payload of front() until receive_claimed(), and returns the frame. Null: the sender has closed
  // meanwhile. Notify the sender after either, because it may wait for the claim to end.
  [[nodiscard]] const QueuedFrame* claim() noexcept {
    claimed_.store(true, std::memory_order_seq_cst);
    if (!is_closed(state())) return &at(received_.load(std::memory_order_relaxed));
    claimed_.store(false, std::memory_order_seq_cst);
    return nullptr;
  }
  // Removes the claimed frame.
  void receive_claimed() noexcept {
    received_.store(received_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    claimed_.store(false, std::memory_order_seq_cst);
  }

  // ---- both ----
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_seq_cst); }
  [[nodiscard]] static bool is_closed(State state) noexcept { return state >= State::kClosed; }
  [[nodiscard]] bool all_received() const noexcept {
    return received_.load(std::memory_order_seq_cst) == accepted_.load(std::memory_order_seq_cst);
  }

 private:
  [[nodiscard]] QueuedFrame& at(uint64_t count) noexcept { return frames_[count % frames_.size()]; }

  // completed_ <= received_ <= accepted_, and accepted_ - completed_ <= frames_.size(). They count since the
  // start.
  std::vector<QueuedFrame> frames_;
  uint64_t completed_ = 0;                                 // frames with on_sent(); sender
  uint64_t seen_received_ = 0;                             // received_, as the sender read it last
  alignas(kCacheLine) std::atomic<uint64_t> accepted_{0};  // stored by the sender
  std::atomic<State> state_{State::kOpen};
  alignas(kCacheLine) std::atomic<uint64_t> received_{0};  // stored by the receiver
  std::atomic<bool> claimed_{false};
};

// The state that the two sides share. A side may put frames before the other side has an endpoint.
struct Connection {
  // Sets the Waker of the context that drives `side`, once, and keeps it alive. The context must poll its
  // endpoint after this: earlier calls of notify() had no effect.
  void set_waker(unsigned side, std::shared_ptr<Waker> waker) noexcept {
    owners_[side] = std::move(waker);
    wakers_[side].store(owners_[side].get(), std::memory_order_seq_cst);
  }
  void notify(unsigned side) noexcept {
    if (Waker* const waker = wakers_[side].load(std::memory_order_seq_cst); waker != nullptr) waker->notify();
  }

  std::array<Pipe, 2> pipes;  // pipes[s] carries the frames that side s sends

 private:
  std::array<std::shared_ptr<Waker>, 2> owners_;
  std::array<std::atomic<Waker*>, 2> wakers_{};
};

// Without release_connection(), the destructor breaks the connection: the peer sees kReset.
class PipeEnd final : public tcp::AttachedChannel {
 public:
  PipeEnd(std::shared_ptr<Connection> connection, unsigned side) noexcept
      : tcp::AttachedChannel(Kind::kPipe), connection_(std::move(connection)), side_(side) {}
  ~PipeEnd() override {
    if (!connection_) return;
    connection_->pipes[side_].close(true);
    connection_->notify(1 - side_);
  }
  [[nodiscard]] unsigned side() const noexcept { return side_; }
  [[nodiscard]] std::shared_ptr<Connection> release_connection() noexcept { return std::move(connection_); }

 private:
  std::shared_ptr<Connection> connection_;
  const unsigned side_;
};

using PipeEnds = std::pair<std::unique_ptr<PipeEnd>, std::unique_ptr<PipeEnd>>;
[[nodiscard]] inline PipeEnds make_pipe_ends() {
  auto connection = std::make_shared<Connection>();
  return {std::make_unique<PipeEnd>(connection, 0), std::make_unique<PipeEnd>(connection, 1)};
}

}  // namespace sluice::transport::memory
