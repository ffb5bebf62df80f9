#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline::test {

// DeviceTestBed is a device and its environment in a process: streams of the caller, work on them, and device
// memory.
class DeviceTestBed {
 public:
  virtual ~DeviceTestBed() = default;
  [[nodiscard]] virtual Device& device() = 0;
  // The stream is destroyed with the test bed and must be idle by then.
  [[nodiscard]] virtual Device::Stream make_stream() = 0;
  // Runs host work on the stream.
  virtual void submit(Device::Stream stream, std::function<void()> work) = 0;
  // Allocates memory for gather() and scatter(). Freed with the test bed.
  [[nodiscard]] virtual std::byte* allocate(size_t bytes) = 0;
  // Access the memory from the host at once. No stream may use it meanwhile.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, const std::byte* from) = 0;
  // True when a waiting stream does not delay other streams.
  [[nodiscard]] virtual bool has_independent_streams() const { return true; }
};

// The devices of this build: "host", "cuda" on a fake driver, and "cuda_one_queue", the same with a GPU that
// executes the work of all streams in order of submission.
[[nodiscard]] std::vector<std::string> device_names();
[[nodiscard]] std::unique_ptr<DeviceTestBed> make_device_test_bed(const std::string& name);
[[nodiscard]] std::unique_ptr<DeviceTestBed> make_host_test_bed();
[[nodiscard]] std::unique_ptr<DeviceTestBed> make_cuda_test_bed(bool one_queue);  // only with CUDA

// Makes the process load the fake CUDA driver (only with CUDA). Call before any other use of a driver.
void use_stand_in();

class DeviceFixture : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { test_bed_ = make_device_test_bed(GetParam()); }

  DeviceTestBed& test_bed() { return *test_bed_; }
  Device& device() { return test_bed_->device(); }
  std::unique_ptr<Event> event();
  std::unique_ptr<PinnedMemory> pinned(size_t bytes);
  // Waits until the stream has completed all earlier work.
  void synchronize(Device::Stream stream);

 private:
  std::unique_ptr<DeviceTestBed> test_bed_;
};

// The suffix of a test name.
[[nodiscard]] std::string device_label(const testing::TestParamInfo<std::string>& info);

#define SLUICE_OVER_ALL_DEVICES(suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(Over, suite, testing::ValuesIn(sluice::pipeline::test::device_names()), \
                           device_label)

}  // namespace sluice::pipeline::test
