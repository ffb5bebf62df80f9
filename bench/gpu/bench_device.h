// Class BenchDevice is the device that one rank measures, and allocates memory on it. The session opens a
// separate pipeline::Device. Measurements without a session use this one.
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
  std::optional<sluice_device_kind> kind = {};  // empty: a GPU if available, otherwise the host
  int ordinal = -1;                             // of the GPU; -1: rank modulo the number of GPUs
};

// Parses "host", "cuda" or "cuda:N". Throws Failure(kExitUsage) for other texts.
[[nodiscard]] DeviceChoice parse_device(const std::string& text);

class BenchDevice {
 public:
  // Throws Failure(kExitUnavailable) when `choice` requires a GPU and none is usable.
  [[nodiscard]] static BenchDevice open(const DeviceChoice& choice, uint32_t rank);

  [[nodiscard]] sluice_device_kind kind() const noexcept { return kind_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  // Returns "host" or "cuda".
  [[nodiscard]] const char* name() const noexcept;
  // Returns why the host is used instead of a GPU; empty when a GPU is used or the caller chose the host.
  [[nodiscard]] const std::string& host_reason() const noexcept { return host_reason_; }
  [[nodiscard]] pipeline::Device& device() noexcept { return *device_; }

  // Both throw Failure(kExitFailure) when the memory is not available. allocate() returns memory on the
  // device.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(uint64_t bytes);
  [[nodiscard]] std::unique_ptr<pipeline::PinnedMemory> pin(uint64_t bytes);

  // Copy `bytes` to or from pinned memory and return when the copy is complete.
  void read(const std::byte* from, std::byte* pinned, uint64_t bytes);
  void write(const std::byte* pinned, std::byte* to, uint64_t bytes);
  // Returns when all work of `stream` is complete.
  void drain(pipeline::Device::Stream stream);
  // Throws Failure(kExitFailure) with the error text of the device.
  void check(Status status);

 private:
  BenchDevice(sluice_device_kind kind, int ordinal, std::unique_ptr<pipeline::Device> device);

  sluice_device_kind kind_;
  int ordinal_;
  std::string host_reason_;
  std::unique_ptr<pipeline::Device> device_;
  std::unique_ptr<pipeline::Event> drained_;
};

}  // namespace sluice::bench
