#include "gpu_client/pipeline/staging.h"

#include "gpu_client/pipeline/batch.h"

namespace sluice::pipeline {
namespace {

constexpr size_t kExponentBytes = kMaxBatchElements / kScaleBlock;
// A separate page: the host writes the word while devices read the buffers.
constexpr size_t kWordBytes = 4096;

}  // namespace

Result<Staging> Staging::make(Device& device, uint64_t staging_bytes, uint32_t segment_bytes, bool scaled) {
  Staging staging;
  const size_t segments = staging_bytes / 2 / segment_bytes;
  const size_t exponents = scaled ? kExponentBuffers * 2 * kExponentBytes : 0;
  auto pinned = device.allocate_pinned(kWordBytes + exponents + segments * 2 * segment_bytes);
  if (!pinned) return tl::unexpected(pinned.error());
  staging.pinned_ = std::move(*pinned);
  std::byte* next = staging.pinned_->bytes().data() + kWordBytes;
  const auto assign = [&](StagingBuffer& buffer, size_t bytes) -> Result<void> {
    auto event = device.make_event();
    if (!event) return tl::unexpected(event.error());
    buffer.released = std::move(*event);
    buffer.send = next;
    buffer.recv = next + bytes;
    next += 2 * bytes;
    return {};
  };
  if (scaled) {
    for (StagingBuffer& buffer : staging.exponents_) {
      if (auto assigned = assign(buffer, kExponentBytes); !assigned) return tl::unexpected(assigned.error());
    }
  }
  staging.segments_.resize(segments);
  for (StagingBuffer& buffer : staging.segments_) {
    if (auto assigned = assign(buffer, segment_bytes); !assigned) return tl::unexpected(assigned.error());
  }
  return staging;
}

}  // namespace sluice::pipeline
