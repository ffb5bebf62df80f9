#include "gpu_client/pipeline/staging.h"

#include "core/units.h"
#include "gpu_client/pipeline/round.h"

namespace sluice::pipeline {
namespace {

constexpr size_t kExponentBytes = kMostRoundElements / kScaleBlock;
constexpr size_t kWordBytes =
    4096;  // a page of its own: the host writes it while devices read what is beside

}  // namespace

Result<Staging> Staging::make(Device& device, uint64_t staging_bytes, uint32_t piece_bytes, bool scaled) {
  Staging staging;
  const size_t places = staging_bytes / 2 / piece_bytes;
  const size_t exponents = scaled ? kExponentPlaces * 2 * kExponentBytes : 0;
  auto pinned = device.pin(kWordBytes + exponents + places * 2 * piece_bytes);
  if (!pinned) return tl::unexpected(pinned.error());
  staging.pinned_ = std::move(*pinned);
  std::byte* at = staging.pinned_->bytes().data() + kWordBytes;
  const auto lay = [&](Place& place, size_t bytes) -> Result<void> {
    auto event = device.make_event();
    if (!event) return tl::unexpected(event.error());
    place.free = std::move(*event);
    place.out = at;
    place.in = at + bytes;
    at += 2 * bytes;
    return {};
  };
  if (scaled) {
    for (Place& place : staging.exponents_) {
      if (auto laid = lay(place, kExponentBytes); !laid) return tl::unexpected(laid.error());
    }
  }
  staging.pieces_.resize(places);
  for (Place& place : staging.pieces_) {
    if (auto laid = lay(place, piece_bytes); !laid) return tl::unexpected(laid.error());
  }
  return staging;
}

uint32_t* Staging::landed() const noexcept {
  return reinterpret_cast<uint32_t*>(pinned_->bytes().data());
}

}  // namespace sluice::pipeline
