// The pinned memory of a session: places for pieces on their way out and back, taken in turn, and places for
// the exponents of scaled rounds. A place is used again once the device has copied its last result out of it,
// which its event tells; nobody on the host waits for that, the device's streams do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline {

// Memory that is given to streams again and again. `out` and `in` are both of its size.
struct Place {
  std::byte* out = nullptr;  // to the network
  std::byte* in = nullptr;   // from it
  std::unique_ptr<Event> free;
  bool used = false;  // free has been recorded
};

class Staging {
 public:
  static constexpr size_t kExponentPlaces = 4;

  // piece_bytes is at most a quarter of staging_bytes. Exponents cost 128 KiB more where `scaled`.
  [[nodiscard]] static Result<Staging> make(Device& device, uint64_t staging_bytes, uint32_t piece_bytes,
                                            bool scaled);

  [[nodiscard]] size_t places() const noexcept { return pieces_.size(); }
  // The next in turn.
  [[nodiscard]] Place& next_piece() noexcept { return pieces_[piece_turn_++ % pieces_.size()]; }
  [[nodiscard]] Place& next_exponents() noexcept { return exponents_[exponent_turn_++ % exponents_.size()]; }
  // What the host tells the device's streams by, see Device::hold.
  [[nodiscard]] uint32_t* landed() const noexcept;
  // All of it, for network cards.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return pinned_->bytes(); }

 private:
  std::unique_ptr<Pinned> pinned_;
  std::vector<Place> pieces_;
  std::array<Place, kExponentPlaces> exponents_;
  size_t piece_turn_ = 0, exponent_turn_ = 0;
};

}  // namespace sluice::pipeline
