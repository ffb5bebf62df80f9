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
  return "; the limit of locked memory is " + std::to_string(limit.rlim_cur) +
         " bytes, raise it (ulimit -l unlimited)";
}

}  // namespace

std::shared_ptr<Memory> Memory::make() {
  return std::make_shared<RegisteredMemory>();
}

Result<ibv_mr*> register_region(const Device& device, ibv_pd* domain, std::span<std::byte> bytes, int access,
                                const DmaBuf& dmabuf) {
  const Verbs& v = device.verbs();
  const bool is_dmabuf = dmabuf.descriptor >= 0;
  if (is_dmabuf && v.reg_dmabuf_mr == nullptr)
    return fail(Errc::kUnsupported,
                "libibverbs cannot register a dmabuf (no ibv_reg_dmabuf_mr); install rdma-core 34 or newer");
  errno = 0;
  ibv_mr* const region =
      is_dmabuf ? v.reg_dmabuf_mr(domain, dmabuf.offset, bytes.size(),
                                  reinterpret_cast<uintptr_t>(bytes.data()), dmabuf.descriptor, access)
                : v.reg_mr(domain, bytes.data(), bytes.size(), access);
  if (region != nullptr) {
    device.counters().add_registration(bytes.size());
    return region;
  }
  const int error = errno;
  device.counters().add_registration_failure();
  return fail(Errc::kSystem, "cannot register " + std::to_string(bytes.size()) +
                                 (is_dmabuf ? " bytes of a dmabuf: " : " bytes: ") + tcp::error_text(error) +
                                 memory_lock_limit());
}

void unregister_region(const Device& device, ibv_mr* region) noexcept {
  const size_t bytes = region->length;
  device.verbs().dereg_mr(region);
  device.counters().remove_registration(bytes);
}

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::make(std::shared_ptr<const Device> device) {
  errno = 0;
  ibv_pd* const handle = device->verbs().alloc_pd(device->context());
  if (handle == nullptr)
    return fail(Errc::kSystem, "cannot allocate a protection domain on RDMA device " + device->name() + ": " +
                                   tcp::error_text(errno));
  return std::make_shared<ProtectionDomain>(std::move(device), handle);
}

ProtectionDomain::~ProtectionDomain() {
  for (const auto& [range, region] : regions_) unregister_region(*device_, region);
  device_->verbs().dealloc_pd(handle_);
}

// Registers without the lock, because it is slow and lookups must not wait for it.
Result<void> ProtectionDomain::add(std::span<std::byte> bytes, Memory::Use use, const DmaBuf& dmabuf) {
  const int access = use == Memory::Use::kSend ? 0 : kRemoteWriteAccess;
  auto region = register_region(*device_, handle_, bytes, access, dmabuf);
  if (!region) return add_context("RDMA device " + device_->name(), region.error());
  try {
    const std::lock_guard lock(mutex_);
    auto all = regions_;
    all[{bytes.data(), bytes.size(), use}] = *region;
    publish(std::move(all));
  } catch (const std::bad_alloc&) {
    unregister_region(*device_, *region);
    return fail(Errc::kMemoryLimit, "out of memory");
  }
  return {};
}

void ProtectionDomain::remove(std::span<std::byte> bytes, Memory::Use use) noexcept {
  ibv_mr* region = nullptr;
  try {
    const std::lock_guard lock(mutex_);
    auto all = regions_;
    const auto found = all.find({bytes.data(), bytes.size(), use});
    if (found == all.end()) return;  // the device refused the bytes
    region = found->second;
    all.erase(found);
    publish(std::move(all));
  } catch (const std::bad_alloc&) {
    return;  // the region stays registered until the domain is destroyed
  }
  unregister_region(*device_, region);
}

void ProtectionDomain::publish(Regions all) {
  auto table = std::make_shared<Table>();
  for (const auto& [range, region] : all) {
    const auto [begin, size, use] = range;
    table->push_back({.begin = begin,
                      .end = begin + size,
                      .local_key = region->lkey,
                      .remote_key = region->rkey,
                      .remote_writable = use != Memory::Use::kSend,
                      .device_only = use == Memory::Use::kDevice});
  }
  std::stable_partition(table->begin(), table->end(), [](const Region& r) { return r.device_only; });
  regions_ = std::move(all);
  table_ = std::move(table);
  version_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<const ProtectionDomain::Table> ProtectionDomain::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

void RegionLookup::refresh() noexcept {
  const uint64_t current = domain_->version();
  if (current == version_) return;
  table_ = domain_->table();
  version_ = current;
  last_found_ = 0;
  device_only_count_ = static_cast<size_t>(std::ranges::count_if(*table_, &Region::device_only));
}

const Region* RegionLookup::find_device_only(const std::byte* at, size_t bytes) noexcept {
  refresh();
  for (size_t i = 0; i < device_only_count_; ++i) {
    if ((*table_)[i].contains(at, bytes)) return &(*table_)[i];
  }
  return nullptr;
}

const Region* RegionLookup::find(const std::byte* at, size_t bytes) noexcept {
  refresh();
  const size_t count = table_->size();
  for (size_t i = 0; i < count; ++i) {
    const size_t candidate = last_found_ + i < count ? last_found_ + i : last_found_ + i - count;
    if (!(*table_)[candidate].contains(at, bytes)) continue;
    last_found_ = candidate;
    return &(*table_)[candidate];
  }
  return nullptr;
}

std::vector<RegisteredMemory::Buffer>::iterator RegisteredMemory::find(std::span<std::byte> bytes, Use use) {
  return std::ranges::find_if(buffers_, [&](const Buffer& b) {
    return b.bytes.data() == bytes.data() && b.bytes.size() == bytes.size() && b.use == use;
  });
}

Result<void> RegisteredMemory::register_in(ProtectionDomain& domain, const Buffer& buffer) {
  auto added = domain.add(buffer.bytes, buffer.use, buffer.dmabuf);
  if (!added && buffer.use == Use::kDevice) return added;  // the caller reports this error
  if (!added && first_error_.empty()) first_error_ = added.error().text;
  return added;
}

Result<void> RegisteredMemory::add(std::span<std::byte> bytes, Use use) {
  SLUICE_ASSERT(!bytes.empty());
  const std::lock_guard lock(mutex_);
  if (const auto known = find(bytes, use); known != buffers_.end()) {
    ++known->count;
    return {};
  }
  buffers_.push_back({.bytes = bytes, .use = use, .count = 1});
  Result<void> out;
  for (const auto& domain : live_domains()) {
    auto added = register_in(*domain, buffers_.back());
    if (!added && out) out = std::move(added);
  }
  return out;
}

Result<void> RegisteredMemory::add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) {
  SLUICE_ASSERT(!bytes.empty());
  const std::lock_guard lock(mutex_);
  if (const auto known = find(bytes, Use::kDevice); known != buffers_.end()) {
    ++known->count;
    return {};
  }
  Buffer buffer{.bytes = bytes, .use = Use::kDevice, .count = 1, .dmabuf = dmabuf};
  buffers_.reserve(buffers_.size() + 1);
  if (dmabuf.descriptor >= 0) {
    buffer.dmabuf.descriptor = ::fcntl(dmabuf.descriptor, F_DUPFD_CLOEXEC, 0);
    if (buffer.dmabuf.descriptor < 0)
      return fail(Errc::kSystem, "cannot duplicate the descriptor of the dmabuf: " + tcp::error_text(errno));
  }
  const auto domains = live_domains();
  for (const auto& domain : domains) {
    auto added = register_in(*domain, buffer);
    if (added) continue;
    for (const auto& other : domains) other->remove(bytes, Use::kDevice);
    if (buffer.dmabuf.descriptor >= 0) ::close(buffer.dmabuf.descriptor);
    return added;
  }
  buffers_.push_back(buffer);
  return {};
}

RegisteredMemory::~RegisteredMemory() {
  for (const Buffer& b : buffers_) {
    if (b.dmabuf.descriptor >= 0) ::close(b.dmabuf.descriptor);
  }
}

bool RegisteredMemory::remove(std::span<std::byte> bytes, Use use) noexcept {
  const std::lock_guard lock(mutex_);
  const auto known = find(bytes, use);
  if (known == buffers_.end()) return false;
  if (--known->count > 0) return true;
  for (const auto& weak : domains_) {
    if (const auto domain = weak.lock()) domain->remove(bytes, use);
  }
  if (known->dmabuf.descriptor >= 0) ::close(known->dmabuf.descriptor);
  buffers_.erase(known);
  return true;
}

std::string RegisteredMemory::first_error() const {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

std::vector<std::shared_ptr<ProtectionDomain>> RegisteredMemory::live_domains() const {
  std::vector<std::shared_ptr<ProtectionDomain>> out;
  for (const auto& weak : domains_) {
    if (auto domain = weak.lock()) out.push_back(std::move(domain));
  }
  return out;
}

Result<std::shared_ptr<ProtectionDomain>> RegisteredMemory::domain_for(
    const std::shared_ptr<const Device>& device) {
  const std::lock_guard lock(mutex_);
  for (auto& domain : live_domains()) {
    if (&domain->device() == device.get()) return domain;
  }
  auto domain = ProtectionDomain::make(device);
  if (!domain) return domain;
  // The payload of a refused buffer is copied, so the queue pair can still work. GPU memory cannot be copied.
  for (const Buffer& b : buffers_) {
    if (auto added = register_in(**domain, b); !added && b.use == Use::kDevice)
      return tl::unexpected(added.error());
  }
  std::erase_if(domains_, [](const auto& weak) { return weak.expired(); });
  domains_.push_back(*domain);
  return domain;
}

}  // namespace sluice::transport::rdma
