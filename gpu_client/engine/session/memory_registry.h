// Class MemoryRegistry stores which memory of the caller RDMA devices may access, so that operations in that
// memory are not copied. Host memory is registered with the devices; device memory is also recorded here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "transport/rdma/memory.h"

namespace sluice::engine {

class MemoryRegistry {
 public:
  // `memory` is null without RDMA. `submission` is the session's submission lock.
  MemoryRegistry(std::shared_ptr<transport::rdma::Memory> memory, std::mutex& submission)
      : memory_(std::move(memory)), submission_(submission) {}
  MemoryRegistry(const MemoryRegistry&) = delete;

  // See Session for these four. Any thread, without the submission lock.
  [[nodiscard]] Result<void> add(std::span<std::byte> bytes);
  [[nodiscard]] Result<void> add_device(std::span<std::byte> bytes, const transport::rdma::DmaBuf& dmabuf);
  [[nodiscard]] bool is_device_memory(const std::byte* at, uint64_t size) const;
  [[nodiscard]] Status remove(std::span<std::byte> bytes);

  // Submission lock held.
  [[nodiscard]] bool has_device_memory() const noexcept { return !device_ranges_.empty(); }
  // Sets request.on_device. Returns false when a buffer is only partly in device memory.
  [[nodiscard]] bool classify(OpRequest& request) const noexcept;

 private:
  const std::shared_ptr<transport::rdma::Memory> memory_;
  std::mutex& submission_;
  std::vector<std::span<std::byte>> device_ranges_;  // guarded by submission_; one entry per registration
};

}  // namespace sluice::engine
