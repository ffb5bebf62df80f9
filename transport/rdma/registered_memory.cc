#include "transport/rdma/registered_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "core/assert.h"
#include "transport/tcp/address.h"

namespace sluice::transport::rdma {
namespace {

std::string memory_lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; the limit of locked memory is " + std::to_string(limit.rlim_cur) + " bytes (ulimit -l)";
}

// What the device has answered, with errno where it refused.
Result<ibv_mr*> counted(const Device& device, ibv_mr* region, size_t bytes, const char* what) {
  if (region != nullptr) {
    device.counts().registered(bytes);
    return region;
  }
  const int why = errno;
  device.counts().registration_failed();
  return fail(Errc::kSystem, "cannot register " + std::to_string(bytes) + what + ": " + tcp::error_text(why) +
                                 memory_lock_limit());
}

constexpr int kLentAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

std::shared_ptr<Memory> Memory::make() {
  return std::make_shared<RegisteredMemory>();
}

Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain, std::span<std::byte> bytes,
                                int access) {
  errno = 0;
  return counted(device, device.calls().reg_mr(domain, bytes.data(), bytes.size(), access), bytes.size(),
                 " bytes");
}

Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain, std::span<std::byte> bytes,
                                const DmaBuf& dmabuf, int access) {
  if (dmabuf.descriptor < 0) return register_region(device, domain, bytes, access);
  if (device.calls().reg_dmabuf_mr == nullptr)
    return fail(Errc::kUnsupported, "libibverbs has no ibv_reg_dmabuf_mr");
  errno = 0;
  ibv_mr* const region =
      device.calls().reg_dmabuf_mr(domain, dmabuf.offset, bytes.size(),
                                   reinterpret_cast<uintptr_t>(bytes.data()), dmabuf.descriptor, access);
  return counted(device, region, bytes.size(), " bytes of a dmabuf");
}

void unregister_region(const Device& device, ibv_mr* region) noexcept {
  const size_t bytes = region->length;
  device.calls().dereg_mr(region);
  device.counts().deregistered(bytes);
}

Result<std::shared_ptr<Domain>> Domain::make(std::shared_ptr<const Device> device) {
  errno = 0;
  ibv_pd* const handle = device->calls().alloc_pd(device->context());
  if (handle == nullptr)
    return fail(Errc::kSystem, "no protection domain on " + device->name() + ": " + tcp::error_text(errno));
  return std::make_shared<Domain>(std::move(device), handle);
}

Domain::Domain(std::shared_ptr<const Device> device, ibv_pd* handle) noexcept
    : device_(std::move(device)), handle_(handle), table_(std::make_shared<Table>()) {}

Domain::~Domain() {
  for (const auto& [range, region] : registered_) unregister_region(*device_, region);
  device_->calls().dealloc_pd(handle_);
}

// The device takes its time; whoever looks something up meanwhile does not wait for it.
Result<void> Domain::add(std::span<std::byte> bytes, Memory::Use use, const DmaBuf& dmabuf) {
  const int access = use == Memory::Use::kSend ? 0 : kLentAccess;
  auto region = register_region(*device_, handle_, bytes, dmabuf, access);
  if (!region) return add_context("RDMA device " + device_->name(), region.error());
  try {
    const std::lock_guard lock(mutex_);
    auto all = registered_;
    all[{bytes.data(), bytes.size(), use}] = *region;
    publish(std::move(all));
  } catch (const std::bad_alloc&) {
    unregister_region(*device_, *region);
    return fail(Errc::kMemoryLimit, "out of memory");
  }
  return {};
}

void Domain::remove(std::span<std::byte> bytes, Memory::Use use) noexcept {
  ibv_mr* region = nullptr;
  try {
    const std::lock_guard lock(mutex_);
    auto all = registered_;
    const auto found = all.find({bytes.data(), bytes.size(), use});
    if (found == all.end()) return;  // it was refused
    region = found->second;
    all.erase(found);
    publish(std::move(all));
  } catch (const std::bad_alloc&) {
    return;  // it stays registered until the last pair is gone
  }
  unregister_region(*device_, region);
}

void Domain::publish(Registered all) {
  auto table = std::make_shared<Table>();
  for (const auto& [range, region] : all) {
    const auto [begin, size, use] = range;
    table->push_back({.begin = begin,
                      .end = begin + size,
                      .local_key = region->lkey,
                      .remote_key = region->rkey,
                      .lends = use != Memory::Use::kSend,
                      .device = use == Memory::Use::kDevice});
  }
  std::stable_partition(table->begin(), table->end(), [](const Region& r) { return r.device; });
  registered_ = std::move(all);
  table_ = std::move(table);
  changes_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<const Domain::Table> Domain::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

void RegionLookup::refresh() noexcept {
  const uint64_t now = domain_->changes();
  if (now == changes_) return;
  table_ = domain_->table();
  changes_ = now;
  last_ = 0;
  devices_ = static_cast<size_t>(std::ranges::count_if(*table_, &Region::device));
}

const Region* RegionLookup::find_device(const std::byte* at, size_t bytes) noexcept {
  refresh();
  for (size_t i = 0; i < devices_; ++i) {
    if ((*table_)[i].has(at, bytes)) return &(*table_)[i];
  }
  return nullptr;
}

const Region* RegionLookup::find(const std::byte* at, size_t bytes) noexcept {
  refresh();
  const size_t count = table_->size();
  for (size_t i = 0; i < count; ++i) {
    const size_t candidate = last_ + i < count ? last_ + i : last_ + i - count;
    if (!(*table_)[candidate].has(at, bytes)) continue;
    last_ = candidate;
    return &(*table_)[candidate];
  }
  return nullptr;
}

std::vector<RegisteredMemory::Range>::iterator RegisteredMemory::find(std::span<std::byte> bytes, Use use) {
  return std::ranges::find_if(ranges_, [&](const Range& r) {
    return r.bytes.data() == bytes.data() && r.bytes.size() == bytes.size() && r.use == use;
  });
}

Result<void> RegisteredMemory::register_at(Domain& domain, const Range& range) {
  auto added = domain.add(range.bytes, range.use, range.dmabuf);
  if (!added && range.use == Use::kDevice) return added;  // it is not copied instead
  if (!added && refused_.empty()) refused_ = added.error().text;
  return added;
}

Result<void> RegisteredMemory::add(std::span<std::byte> bytes, Use use) {
  SLUICE_ASSERT(!bytes.empty());
  const std::lock_guard lock(mutex_);
  if (const auto known = find(bytes, use); known != ranges_.end()) {
    ++known->count;
    return {};
  }
  ranges_.push_back({.bytes = bytes, .use = use, .count = 1});
  Result<void> out;
  for (const auto& domain : living()) {
    auto added = register_at(*domain, ranges_.back());
    if (!added && out) out = std::move(added);
  }
  return out;
}

Result<void> RegisteredMemory::add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) {
  SLUICE_ASSERT(!bytes.empty());
  const std::lock_guard lock(mutex_);
  if (const auto known = find(bytes, Use::kDevice); known != ranges_.end()) {
    ++known->count;
    return {};
  }
  Range range{.bytes = bytes, .use = Use::kDevice, .count = 1, .dmabuf = dmabuf};
  ranges_.reserve(ranges_.size() + 1);
  if (dmabuf.descriptor >= 0) {
    range.dmabuf.descriptor = ::fcntl(dmabuf.descriptor, F_DUPFD_CLOEXEC, 0);
    if (range.dmabuf.descriptor < 0)
      return fail(Errc::kSystem, "cannot keep the dmabuf's descriptor: " + tcp::error_text(errno));
  }
  const auto domains = living();
  for (const auto& domain : domains) {
    auto added = register_at(*domain, range);
    if (added) continue;
    for (const auto& other : domains) other->remove(bytes, Use::kDevice);
    if (range.dmabuf.descriptor >= 0) ::close(range.dmabuf.descriptor);
    return added;
  }
  ranges_.push_back(range);
  return {};
}

RegisteredMemory::~RegisteredMemory() {
  for (const Range& r : ranges_) {
    if (r.dmabuf.descriptor >= 0) ::close(r.dmabuf.descriptor);
  }
}

bool RegisteredMemory::remove(std::span<std::byte> bytes, Use use) noexcept {
  const std::lock_guard lock(mutex_);
  const auto known = find(bytes, use);
  if (known == ranges_.end()) return false;
  if (--known->count > 0) return true;
  for (const auto& held : domains_) {
    if (const auto domain = held.lock()) domain->remove(bytes, use);
  }
  if (known->dmabuf.descriptor >= 0) ::close(known->dmabuf.descriptor);
  ranges_.erase(known);
  return true;
}

std::string RegisteredMemory::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::vector<std::shared_ptr<Domain>> RegisteredMemory::living() const {
  std::vector<std::shared_ptr<Domain>> out;
  for (const auto& held : domains_) {
    if (auto domain = held.lock()) out.push_back(std::move(domain));
  }
  return out;
}

Result<std::shared_ptr<Domain>> RegisteredMemory::domain_on(const std::shared_ptr<const Device>& device) {
  const std::lock_guard lock(mutex_);
  for (auto& domain : living()) {
    if (&domain->device() == device.get()) return domain;
  }
  auto domain = Domain::make(device);
  if (!domain) return domain;
  // What is refused is copied: the pair itself can be had. A GPU's memory can't be.
  for (const Range& r : ranges_) {
    if (auto added = register_at(**domain, r); !added && r.use == Use::kDevice)
      return tl::unexpected(added.error());
  }
  std::erase_if(domains_, [](const auto& held) { return held.expired(); });
  domains_.push_back(*domain);
  return domain;
}

}  // namespace sluice::transport::rdma
