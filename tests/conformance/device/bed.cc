#include "tests/conformance/device/bed.h"

#include <stdexcept>
#include <utility>

#include "tests/conformance/device/host_bed.h"
#ifdef SLUICE_HAVE_CUDA
#include "tests/conformance/device/cuda_bed.h"
#endif

namespace sluice::pipeline::test {
namespace {

using Maker = std::unique_ptr<Bed> (*)();

std::vector<std::pair<std::string, Maker>> makers() {
  return {
      {"host", make_host_bed},
#ifdef SLUICE_HAVE_CUDA
      {"cuda", [] { return make_cuda_bed(false); }},
      {"cuda_one_queue", [] { return make_cuda_bed(true); }},
#endif
  };
}

}  // namespace

std::vector<std::string> bed_names() {
  std::vector<std::string> names;
  for (auto& [name, maker] : makers()) names.push_back(std::move(name));
  return names;
}

std::unique_ptr<Bed> make_bed(const std::string& name) {
  for (const auto& [known, maker] : makers()) {
    if (known == name) return maker();
  }
  throw std::runtime_error("no device " + name);
}

std::string bed_label(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

std::unique_ptr<Event> DeviceTest::event() {
  auto made = device().make_event();
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(*made);
}

std::unique_ptr<Pinned> DeviceTest::pinned(size_t bytes) {
  auto made = device().pin(bytes);
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(*made);
}

void DeviceTest::finish(Device::Stream stream) {
  const auto end = event();
  ASSERT_TRUE(device().record(*end, stream).ok()) << device().last_words();
  ASSERT_TRUE(device().await(*end).ok()) << device().last_words();
}

}  // namespace sluice::pipeline::test
