// The resources that a test could leak: descriptors of the process, and RDMA objects in the kernel.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>

namespace sluice::transport::test {

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// "0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0". No other process of the guest uses the devices.
inline std::string kernel_resources() {
  const std::unique_ptr<FILE, int (*)(FILE*)> out(::popen("rdma resource show", "r"), ::pclose);
  std::string text;
  for (std::array<char, 256> line; out && std::fgets(line.data(), line.size(), out.get()) != nullptr;)
    text += line.data();
  return text;
}

}  // namespace sluice::transport::test
