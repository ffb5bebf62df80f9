#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/result.h"
#include "transport/rdma/device.h"
#include "transport/rdma/memory.h"

namespace sluice::transport::rdma {

// A registered memory region.
struct Region {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  bool remote_writable = false;  // may be advertised
  bool device_only = false;      // the CPU must not access it
  [[nodiscard]] bool contains(const std::byte* at, size_t bytes) const noexcept {
    return at >= begin && at < end && bytes <= static_cast<size_t>(end - at);
  }
};

inline constexpr int kRemoteWriteAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// Registers memory with a device. `dmabuf` is for GPU memory. kSystem with the reason, kUnsupported.
[[nodiscard]] Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain,
                                              std::span<std::byte> bytes, int access,
                                              const DmaBuf& dmabuf = {});
void unregister_region(const Device& device, ibv_mr* region) noexcept;

// ProtectionDomain holds the regions of one Memory on one device. Any thread; add() and remove() of the same
// bytes must not overlap.
class ProtectionDomain {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ProtectionDomain>> make(std::shared_ptr<const Device> device);
  ProtectionDomain(std::shared_ptr<const Device> device, ibv_pd* handle) noexcept
      : device_(std::move(device)), handle_(handle) {}
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  ~ProtectionDomain();

  [[nodiscard]] const Device& device() const noexcept { return *device_; }
  [[nodiscard]] ibv_pd* handle() const noexcept { return handle_; }

  // `dmabuf` is for kDevice.
  [[nodiscard]] Result<void> add(std::span<std::byte> bytes, Memory::Use use, const DmaBuf& dmabuf = {});
  void remove(std::span<std::byte> bytes, Memory::Use use) noexcept;

  using Table = std::vector<Region>;  // device_only regions first
  // Grows with each change of the table.
  [[nodiscard]] uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  [[nodiscard]] std::shared_ptr<const Table> table() const;

 private:
  using Range = std::tuple<std::byte*, size_t, Memory::Use>;
  using Regions = std::map<Range, ibv_mr*>;
  void publish(Regions all);  // call with the lock

  const std::shared_ptr<const Device> device_;
  ibv_pd* const handle_;
  mutable std::mutex mutex_;
  Regions regions_;
  std::shared_ptr<const Table> table_ = std::make_shared<Table>();
  std::atomic<uint64_t> version_{0};
};

// RegionLookup finds regions of a domain for one thread. It takes the domain's lock only after a change.
class RegionLookup {
 public:
  explicit RegionLookup(std::shared_ptr<const ProtectionDomain> domain) noexcept
      : domain_(std::move(domain)) {}
  // Returns the region that contains all of these bytes, or null. Valid until the next call.
  [[nodiscard]] const Region* find(const std::byte* at, size_t bytes) noexcept;
  // The same among the device_only regions. Costs nothing when there are none.
  [[nodiscard]] const Region* find_device_only(const std::byte* at, size_t bytes) noexcept;

 private:
  void refresh() noexcept;

  const std::shared_ptr<const ProtectionDomain> domain_;
  std::shared_ptr<const ProtectionDomain::Table> table_;
  uint64_t version_ = ~uint64_t{0};
  size_t device_only_count_ = 0;  // at the front of the table
  size_t last_found_ = 0;         // index of the last result of find()
};

// RegisteredMemory registers its buffers with every device on which it has queue pairs.
class RegisteredMemory final : public Memory {
 public:
  ~RegisteredMemory() override;
  Result<void> add(std::span<std::byte> bytes, Use use) override;
  Result<void> add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) override;
  bool remove(std::span<std::byte> bytes, Use use) noexcept override;
  std::string first_error() const override;
  // Returns the domain on this device with all buffers registered. The queue pairs keep it alive.
  [[nodiscard]] Result<std::shared_ptr<ProtectionDomain>> domain_for(
      const std::shared_ptr<const Device>& device);

 private:
  struct Buffer {
    std::span<std::byte> bytes;
    Use use;
    uint32_t count;
    DmaBuf dmabuf{};  // for kDevice; owns the descriptor
  };
  // Call these with the lock.
  [[nodiscard]] std::vector<Buffer>::iterator find(std::span<std::byte> bytes, Use use);
  Result<void> register_in(ProtectionDomain& domain, const Buffer& buffer);
  [[nodiscard]] std::vector<std::shared_ptr<ProtectionDomain>> live_domains() const;

  mutable std::mutex mutex_;
  std::vector<Buffer> buffers_;
  // The queue pairs own the domains, so that a removed device is closed with its last queue pair.
  std::vector<std::weak_ptr<ProtectionDomain>> domains_;
  std::string first_error_;
};

}  // namespace sluice::transport::rdma
