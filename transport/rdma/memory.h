// Memory that devices may reach: payload that lies in it goes over a queue pair without a copy, at the sender
// because the device reads it there, at the receiver because the peer writes it there (Handler::lend). Other
// payload is copied once at each end. A GPU's memory can be known too, and is never copied: a processor that
// touches it would fault, or crawl. Names no verbs, and is there in a build without them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"

namespace sluice::transport::rdma {

// How a kernel knows a GPU's memory: `offset` bytes into a dmabuf. Descriptor -1: by its address alone, which
// takes a module of the GPU's driver (nvidia_peermem).
struct DmaBuf {
  int descriptor = -1;
  uint64_t offset = 0;
};

// For all queue pairs that are made with it, on whatever devices they are. Their peers are the ones that may
// write to what is lent, and can't reach what belongs to another Memory. Any thread.
class Memory {
 public:
  [[nodiscard]] static std::shared_ptr<Memory> make();
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  // kDevice: as kSendAndLend, of bytes that only devices may touch.
  enum class Use { kSend, kSendAndLend, kDevice };
  // From now on. It stays mapped until remove(). The same bytes may be added again, and are known until each
  // of these was removed. kSystem with why a device refused (locked memory, say): what lies there is copied
  // on that device's pairs, and remove() is due as ever.
  [[nodiscard]] virtual Result<void> add(std::span<std::byte> bytes, Use use) = 0;
  // As add() for kDevice. The descriptor stays the caller's, and is duplicated for pairs that are made later;
  // nothing of it is kept where this fails, so no remove() is due. Nothing lies there that could be copied: a
  // device that refuses such bytes gets no pair. kUnsupported: libibverbs has no call for a dmabuf.
  [[nodiscard]] virtual Result<void> add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) = 0;
  // Nobody sends from it, and it is lent to nobody (Endpoint::lent). As it was added; false: it was not.
  virtual bool remove(std::span<std::byte> bytes, Use use) noexcept = 0;
  // What a device refused first, of add() or of a pair that was made later; empty: nothing.
  [[nodiscard]] virtual std::string refused() const = 0;
};

// Bytes that are known to `memory` as long as this lives.
class KnownBytes {
 public:
  KnownBytes() = default;
  KnownBytes(std::shared_ptr<Memory> memory, std::span<std::byte> bytes, Memory::Use use)
      : memory_(std::move(memory)), bytes_(bytes), use_(use) {
    (void)memory_->add(bytes_, use_);  // Memory::refused() tells
  }
  KnownBytes(KnownBytes&& other) noexcept { *this = std::move(other); }
  KnownBytes& operator=(KnownBytes&& other) noexcept {
    if (memory_) (void)memory_->remove(bytes_, use_);
    memory_ = std::move(other.memory_);
    bytes_ = other.bytes_;
    use_ = other.use_;
    return *this;
  }
  ~KnownBytes() {
    if (memory_) (void)memory_->remove(bytes_, use_);
  }

 private:
  std::shared_ptr<Memory> memory_;
  std::span<std::byte> bytes_;
  Memory::Use use_ = Memory::Use::kSend;
};

// What a queue pair needs to know of memory.
struct PairMemory {
  std::shared_ptr<Memory> memory{};  // null: all payload is copied
  // Bytes that this connection alone lends: others that were made with `memory` can't be written by its peer,
  // and they are out of reach as soon as it has closed.
  std::span<std::byte> lends{};
  std::shared_ptr<const void> owner{};  // of those bytes: kept until the device knows them no more
};

}  // namespace sluice::transport::rdma
