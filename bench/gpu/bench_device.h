// The device that one rank measures: the pipeline's, opened once more beside the session's own for what is
// measured without a session, and memory that lies on it.
#pragma once

#include <sluice/streams.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/status.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::bench {

struct DeviceChoice {
  std::optional<sluice_device_kind> kind = {};  // nothing: a GPU where there is one
  int ordinal = -1;                             // of a GPU; -1: rank modulo the number of GPUs
};

// "host", "cuda" or "cuda:N". Failure(kExitUsage) for anything else.
[[nodiscard]] DeviceChoice parse_device(const std::string& text);

// Memory that operations name.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 protected:
  std::byte* data_ = nullptr;
};

class BenchDevice {
 public:
  // Failure(kExitUnavailable) when it has to be a GPU, and there is none that can be used.
  [[nodiscard]] static BenchDevice open(const DeviceChoice& choice, uint32_t rank);

  [[nodiscard]] sluice_device_kind kind() const noexcept { return kind_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  // "host", "cuda".
  [[nodiscard]] const char* name() const noexcept;
  // Why it is not the GPU that would have been taken; empty: it is, or nobody asked for one.
  [[nodiscard]] const std::string& why_host() const noexcept { return why_host_; }
  [[nodiscard]] pipeline::Device& device() noexcept { return *device_; }

  // Both: Failure(kExitFailure) when there is not so much.
  [[nodiscard]] std::unique_ptr<DeviceBuffer> allocate(uint64_t bytes);
  [[nodiscard]] std::unique_ptr<pipeline::Pinned> pin(uint64_t bytes);

  // Copies `bytes` from or to pinned memory, and returns when it is done.
  void read(const std::byte* from, std::byte* pinned, uint64_t bytes);
  void write(const std::byte* pinned, std::byte* to, uint64_t bytes);
  // Returns when all is done that `stream` was given.
  void drain(pipeline::Device::Stream stream);
  // Failure(kExitFailure) with what the device says of it.
  void check(Status status);

 private:
  BenchDevice(sluice_device_kind kind, int ordinal, std::unique_ptr<pipeline::Device> device);

  sluice_device_kind kind_;
  int ordinal_;
  std::string why_host_;
  std::unique_ptr<pipeline::Device> device_;
  std::unique_ptr<pipeline::Event> drained_;
};

}  // namespace sluice::bench
