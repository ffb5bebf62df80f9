// Class Staging owns the pinned memory of a session's streams: one pair of buffers for each segment in
// flight, and pairs for the exponents of scaled batches. The pairs are used in turn. A pair is reused after
// the device has copied its last result from it, which its event signals. Only the device's streams wait for
// that event, not the host.
//
// Not thread-safe; the enqueue mutex of Streams protects it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline {

// A pair of buffers of one size in pinned memory: a contribution and its result.
struct StagingBuffer {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::unique_ptr<Event> released;  // the device has copied the result out
  bool used = false;                // `released` has been recorded
};

class Staging {
 public:
  static constexpr size_t kExponentBuffers = 4;

  // `segment_bytes` is at most a quarter of `staging_bytes`. With `scaled` the exponents need 128 KiB more.
  [[nodiscard]] static Result<Staging> make(Device& device, uint64_t staging_bytes, uint32_t segment_bytes,
                                            bool scaled);

  // Pairs of buffers for segments.
  [[nodiscard]] size_t buffer_count() const noexcept { return segments_.size(); }
  [[nodiscard]] StagingBuffer& next_segment_buffer() noexcept {
    return segments_[next_segment_++ % segments_.size()];
  }
  [[nodiscard]] StagingBuffer& next_exponent_buffer() noexcept {
    return exponents_[next_exponent_++ % exponents_.size()];
  }
  // The word by which the host tells the device's streams how many network operations have completed. See
  // Device::wait_value.
  [[nodiscard]] uint32_t* completion_word() const noexcept {
    return reinterpret_cast<uint32_t*>(pinned_->bytes().data());
  }
  // The whole memory, for registration with network cards.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return pinned_->bytes(); }

 private:
  std::unique_ptr<PinnedMemory> pinned_;
  std::vector<StagingBuffer> segments_;
  std::array<StagingBuffer, kExponentBuffers> exponents_;
  size_t next_segment_ = 0, next_exponent_ = 0;
};

}  // namespace sluice::pipeline
