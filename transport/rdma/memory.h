// Memory that RDMA devices may access. Does not include verbs.h; also for a build without verbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"

namespace sluice::transport::rdma {

// GPU memory as the kernel knows it: `offset` bytes into a dmabuf. Without a descriptor (-1) the kernel finds
// the memory by its address, which needs a module of the GPU driver (nvidia_peermem).
struct DmaBuf {
  int descriptor = -1;
  uint64_t offset = 0;
};

// Memory is the set of buffers that the queue pairs of one user send from and receive into without a copy.
// The device reads a payload from such a buffer, and the peer writes a payload into a buffer that was
// advertised to it (Handler::advertise). Other payload is copied once at each end. GPU memory is never
// copied, because the CPU cannot access it or accesses it very slowly.
//
// The peers of these queue pairs can write to no buffer of another Memory. Any thread.
class Memory {
 public:
  [[nodiscard]] static std::shared_ptr<Memory> make();
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  // kDevice: as kSendAndAdvertise, for memory that the CPU must not access.
  enum class Use { kSend, kSendAndAdvertise, kDevice };
  // Adds a buffer, which must stay mapped until remove(). A buffer may be added several times and needs as
  // many remove() calls, also after an error. kSystem when a device refused the buffer (for example for the
  // limit of locked memory): its payload is then copied on the queue pairs of that device.
  [[nodiscard]] virtual Result<void> add(std::span<std::byte> bytes, Use use) = 0;
  // As add() for kDevice, with two differences. After an error nothing was added and no remove() is due. A
  // device that refuses the buffer later gets no queue pair, because the payload cannot be copied instead.
  // The descriptor is duplicated; the caller keeps it. kUnsupported: libibverbs cannot register a dmabuf.
  [[nodiscard]] virtual Result<void> add_device(std::span<std::byte> bytes, const DmaBuf& dmabuf) = 0;
  // Removes a buffer with the arguments of add(). No put may send from it and it must not be advertised
  // (Endpoint::has_advertised_buffers). False: there is no such buffer.
  virtual bool remove(std::span<std::byte> bytes, Use use) noexcept = 0;
  // The first refusal of a device, by add() or for a later queue pair. Empty: none.
  [[nodiscard]] virtual std::string first_error() const = 0;
};

// ScopedRegistration keeps a buffer added to a Memory while it or a copy of it lives.
class ScopedRegistration {
 public:
  ScopedRegistration() = default;
  ScopedRegistration(const std::shared_ptr<Memory>& memory, std::span<std::byte> bytes, Memory::Use use)
      : memory_(memory.get(), [memory, bytes, use](Memory* m) { (void)m->remove(bytes, use); }) {
    (void)memory->add(bytes, use);  // Memory::first_error() has the error
  }

 private:
  std::shared_ptr<Memory> memory_;
};

// The memory that one queue pair uses.
struct PairMemory {
  std::shared_ptr<Memory> memory{};  // null: all payload is copied
  // Buffers that this connection alone advertises. Peers of other connections with the same `memory` cannot
  // write to them, and no peer can once this connection has closed.
  std::span<std::byte> own_buffers{};
  std::shared_ptr<const void> owner{};  // keeps own_buffers valid until the device no longer uses them
};

}  // namespace sluice::transport::rdma
