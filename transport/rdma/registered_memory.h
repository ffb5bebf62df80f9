// Memory as devices know it: a protection domain on each, and the regions registered there.
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

struct Region {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  bool lends = false;
  bool device = false;  // only devices may touch it
  [[nodiscard]] bool has(const std::byte* at, size_t bytes) const noexcept {
    return at >= begin && at < end && bytes <= static_cast<size_t>(end - at);
  }
};

// Registers with words about why it can't be done.
[[nodiscard]] Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain,
                                              std::span<std::byte> bytes, int access);
// The same of a GPU's memory.
[[nodiscard]] Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain,
                                              std::span<std::byte> bytes, const DmaBuf& dmabuf, int access);
void unregister_region(const Device& device, ibv_mr* region) noexcept;

// On one device. Any thread; add() and remove() of the same bytes one after the other.
class Domain {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Domain>> make(std::shared_ptr<const Device> device);
  Domain(std::shared_ptr<const Device> device, ibv_pd* handle) noexcept;
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  [[nodiscard]] const Device& device() const noexcept { return *device_; }
  [[nodiscard]] ibv_pd* handle() const noexcept { return handle_; }

  // `dmabuf`: of kDevice.
  [[nodiscard]] Result<void> add(std::span<std::byte> bytes, Memory::Use use, const DmaBuf& dmabuf = {});
  void remove(std::span<std::byte> bytes, Memory::Use use) noexcept;

  using Table = std::vector<Region>;  // those of devices first
  // Goes up with each change of the table.
  [[nodiscard]] uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  [[nodiscard]] std::shared_ptr<const Table> table() const;

 private:
  using Range = std::tuple<std::byte*, size_t, Memory::Use>;
  using Registered = std::map<Range, ibv_mr*>;
  void publish(Registered all);  // with the lock

  const std::shared_ptr<const Device> device_;
  ibv_pd* const handle_;
  mutable std::mutex mutex_;
  Registered registered_;
  std::shared_ptr<const Table> table_;
  std::atomic<uint64_t> changes_{0};
};

// One thread's view of a domain: a look-up takes no lock while nothing has changed.
class RegionLookup {
 public:
  explicit RegionLookup(std::shared_ptr<const Domain> domain) noexcept : domain_(std::move(domain)) {}
  // The region that has all of these bytes, or null. Valid until the next call.
  [[nodiscard]] const Region* find(const std::byte* at, size_t bytes) noexcept;
  // The same among those that only devices may touch; costs nothing where there are none.
  [[nodiscard]] const Region* find_device(const std::byte* at, size_t bytes) noexcept;

 private:
  void refresh() noexcept;

  const std::shared_ptr<const Domain> domain_;
  std::shared_ptr<const Domain::Table> table_;
  uint64_t changes_ = ~uint64_t{0};
  size_t devices_ = 0;  // so many in front of the table
  size_t last_ = 0;     // where the last one was found
};

class RegisteredMemory final : public Memory {
 public:
  ~RegisteredMemory() override;
  Result<void> add(std::span<std::byte> bytes, Use use) override;
  Result<void> add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) override;
  bool remove(std::span<std::byte> bytes, Use use) noexcept override;
  std::string refused() const override;
  // With all that was added. Made with the first pair on the device, and kept by its pairs.
  [[nodiscard]] Result<std::shared_ptr<Domain>> domain_on(const std::shared_ptr<const Device>& device);

 private:
  struct Range {
    std::span<std::byte> bytes;
    Use use;
    uint32_t count;
    DmaBuf dmabuf{};  // of kDevice; the descriptor is ours
  };
  [[nodiscard]] std::vector<Range>::iterator find(std::span<std::byte> bytes, Use use);
  // With the lock.
  Result<void> register_at(Domain& domain, const Range& range);

  mutable std::mutex mutex_;
  std::vector<Range> ranges_;
  // Theirs who have pairs there: a device that is removed must be let go of by all.
  [[nodiscard]] std::vector<std::shared_ptr<Domain>> living() const;
  std::vector<std::weak_ptr<Domain>> domains_;
  std::string refused_;
};

}  // namespace sluice::transport::rdma
