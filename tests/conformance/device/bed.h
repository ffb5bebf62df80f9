// A device and what lies around it in somebody's process: streams of a caller's, work on them, memory that
// only the device's copies reach.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline::test {

class Bed {
 public:
  virtual ~Bed() = default;
  [[nodiscard]] virtual Device& device() = 0;
  // It ends with the bed, and is idle by then.
  [[nodiscard]] virtual Device::Stream make_stream() = 0;
  // Gives the stream work of the host's.
  virtual void submit(Device::Stream stream, std::function<void()> work) = 0;
  // What gather() and scatter() take. Freed with the bed.
  [[nodiscard]] virtual std::byte* allocate(size_t bytes) = 0;
  // From the host, at once: not while a stream has it.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, const std::byte* from) = 0;
  // Whether a stream that waits leaves the others alone.
  [[nodiscard]] virtual bool has_independent_streams() const { return true; }
};

// The devices that this build has: "host", "cuda" on a driver that plays GPUs, and "cuda_one_queue", the same
// when the GPU does all streams' work in the order in which it is given.
[[nodiscard]] std::vector<std::string> bed_names();
[[nodiscard]] std::unique_ptr<Bed> make_bed(const std::string& name);

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { bed_ = make_bed(GetParam()); }

  Bed& bed() { return *bed_; }
  Device& device() { return bed_->device(); }
  std::unique_ptr<Event> event();
  std::unique_ptr<Pinned> pinned(size_t bytes);
  // Returns when the stream has done all that it was given before.
  void finish(Device::Stream stream);

 private:
  std::unique_ptr<Bed> bed_;
};

// The suffix of a test's name.
[[nodiscard]] std::string bed_label(const testing::TestParamInfo<std::string>& info);

#define SLUICE_OVER_ALL_DEVICES(suite) \
  INSTANTIATE_TEST_SUITE_P(Over, suite, testing::ValuesIn(sluice::pipeline::test::bed_names()), bed_label)

}  // namespace sluice::pipeline::test
