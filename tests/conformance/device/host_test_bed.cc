#include "tests/conformance/device/device_test_bed.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "gpu_client/host/host_device.h"
#include "gpu_client/host/host_stream.h"

namespace sluice::pipeline::test {
namespace {

class HostTestBed final : public DeviceTestBed {
 public:
  HostTestBed() {
    auto opened = host::open_host_device();
    if (!opened) throw std::runtime_error(opened.error().text);
    device_ = std::move(*opened);
  }

  Device& device() override { return *device_; }

  Device::Stream make_stream() override {
    auto started = host::HostStream::start();
    if (!started) throw std::runtime_error(started.error().text);
    streams_.push_back(std::move(*started));
    return streams_.back().get();
  }
  void submit(Device::Stream stream, std::function<void()> work) override {
    static_cast<host::HostStream*>(stream)->submit(std::move(work));
  }
  std::byte* allocate(size_t bytes) override {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return memory_.back().get();
  }
  void write(std::byte* to, std::span<const std::byte> from) override { std::ranges::copy(from, to); }
  void read(std::span<std::byte> to, const std::byte* from) override {
    std::copy_n(from, to.size(), to.data());
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::unique_ptr<host::HostStream>> streams_;
  std::unique_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<DeviceTestBed> make_host_test_bed() {
  return std::make_unique<HostTestBed>();
}

}  // namespace sluice::pipeline::test
