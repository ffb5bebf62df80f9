// Hands one end of a pipe from a lane connection's client to the reducer in the same process. The two do not
// know each other: the client offers the end under a random key, sends the key in PAIR (protocol.md section
// 5), and the reducer takes the end with it. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "transport/memory/pipe.h"

namespace sluice::transport::memory {

inline constexpr size_t kPipeKeyBytes = 16;
using PipeKey = std::array<uint8_t, kPipeKeyBytes>;
// Offers that wait at the same time in a process.
inline constexpr size_t kMaxOfferedPipes = 1024;

// Class OfferedPipe is a pipe whose far end waits to be taken. Destruction withdraws the offer.
class OfferedPipe {
 public:
  // Errors: kSystem without random bytes, kExhausted with too many offers.
  [[nodiscard]] static Result<OfferedPipe> make();
  OfferedPipe(OfferedPipe&& other) noexcept;
  OfferedPipe& operator=(OfferedPipe&&) = delete;
  ~OfferedPipe();

  [[nodiscard]] const PipeKey& key() const noexcept { return key_; }
  // The near end, once.
  [[nodiscard]] std::unique_ptr<PipeEnd> take_near_end() noexcept { return std::move(near_); }

 private:
  OfferedPipe(const PipeKey& key, std::unique_ptr<PipeEnd> near_end) noexcept
      : key_(key), near_(std::move(near_end)) {}
  PipeKey key_;
  std::unique_ptr<PipeEnd> near_;
  bool is_offered_ = true;
};

// The far end that was offered under the key; null: none, withdrawn, or taken before.
[[nodiscard]] std::unique_ptr<PipeEnd> take_offered_pipe(std::span<const uint8_t> key) noexcept;

}  // namespace sluice::transport::memory
