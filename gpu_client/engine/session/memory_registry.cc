#include "gpu_client/engine/session/memory_registry.h"

#include <algorithm>

namespace sluice::engine {
namespace {

using Use = transport::rdma::Memory::Use;

}  // namespace

Result<void> MemoryRegistry::add(std::span<std::byte> bytes) {
  if (!memory_) return {};
  auto added = memory_->add(bytes, Use::kSendAndAdvertise);
  if (!added) (void)memory_->remove(bytes, Use::kSendAndAdvertise);
  return added;
}

Result<void> MemoryRegistry::add_device(std::span<std::byte> bytes, const transport::rdma::DmaBuf& dmabuf) {
  if (auto added = memory_->add_device(bytes, dmabuf); !added) return added;
  const std::lock_guard lock(submission_);
  device_ranges_.push_back(bytes);
  return {};
}

bool MemoryRegistry::is_device_memory(const std::byte* at, uint64_t size) const {
  const std::lock_guard lock(submission_);
  return std::ranges::any_of(device_ranges_, [&](std::span<std::byte> range) {
    return at >= range.data() && size <= range.size() &&
           static_cast<size_t>(at - range.data()) <= range.size() - size;
  });
}

bool MemoryRegistry::classify(OpRequest& request) const noexcept {
  const uint64_t size = request.count * wire::size_of(request.dtype);
  bool all_whole = true;
  for (const std::byte* const buffer : {request.send, static_cast<const std::byte*>(request.recv)}) {
    bool overlaps = false, is_inside = false;
    for (const std::span<std::byte> range : device_ranges_) {
      const std::byte* const end = range.data() + range.size();
      overlaps |= buffer < end && range.data() < buffer + size;
      is_inside |= buffer >= range.data() && buffer < end && size <= static_cast<size_t>(end - buffer);
    }
    request.on_device |= overlaps;
    all_whole &= is_inside || !overlaps;
  }
  return all_whole;
}

Status MemoryRegistry::remove(std::span<std::byte> bytes) {
  {
    const std::lock_guard lock(submission_);
    const auto range = std::ranges::find_if(device_ranges_, [&](std::span<std::byte> r) {
      return r.data() == bytes.data() && r.size() == bytes.size();
    });
    if (range != device_ranges_.end()) {
      device_ranges_.erase(range);
      (void)memory_->remove(bytes, Use::kDevice);
      return Errc::kOk;
    }
  }
  if (!memory_ || memory_->remove(bytes, Use::kSendAndAdvertise)) return Errc::kOk;
  return Errc::kInvalidArgument;
}

}  // namespace sluice::engine
