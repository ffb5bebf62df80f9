#include "tests/conformance/device/device_test_bed.h"

#include <stdexcept>
#include <utility>

namespace sluice::pipeline::test {
namespace {

using Maker = std::unique_ptr<DeviceTestBed> (*)();

std::vector<std::pair<std::string, Maker>> makers() {
  return {
      {"host", make_host_test_bed},
#ifdef SLUICE_HAVE_CUDA
      {"cuda", [] { return make_cuda_test_bed(false); }},
      {"cuda_one_queue", [] { return make_cuda_test_bed(true); }},
#endif
  };
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (auto& [name, maker] : makers()) names.push_back(std::move(name));
  return names;
}

std::unique_ptr<DeviceTestBed> make_device_test_bed(const std::string& name) {
  for (const auto& [known, maker] : makers()) {
    if (known == name) return maker();
  }
  throw std::runtime_error("unknown device \"" + name + "\"");
}

std::string device_label(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

std::unique_ptr<Event> DeviceFixture::event() {
  auto made = device().make_event();
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(*made);
}

std::unique_ptr<PinnedMemory> DeviceFixture::pinned(size_t bytes) {
  auto made = device().allocate_pinned(bytes);
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(*made);
}

void DeviceFixture::synchronize(Device::Stream stream) {
  const auto end = event();
  ASSERT_TRUE(device().record(*end, stream).ok()) << device().last_error();
  ASSERT_TRUE(device().synchronize(*end).ok()) << device().last_error();
}

}  // namespace sluice::pipeline::test
