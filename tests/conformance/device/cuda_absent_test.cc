// Machines without a CUDA driver, or with an old one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu_client/cuda/cuda_device.h"
#include "gpu_client/cuda/driver.h"

namespace sluice::cuda {
namespace {

using testing::HasSubstr;

void expect_unsupported(const char* library, const std::string& text) {
  ASSERT_EQ(::setenv("SLUICE_CUDA_DRIVER", library, 1), 0);
  const auto device = open_cuda_device(0);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, Errc::kUnsupported);
  EXPECT_THAT(device.error().text, HasSubstr(text));
}

TEST(CudaAbsent, NoDriver) {
  expect_unsupported("libno-such-driver.so.1",
                     "cannot load the CUDA driver: libno-such-driver.so.1: cannot open shared object file");
}

TEST(CudaAbsent, ADriverThatLacksACall) {
  expect_unsupported(SLUICE_CUDA_TOO_OLD, "is too old: it lacks cuDriverGetVersion");
}

TEST(CudaAbsent, FindsADriverThatAppearsLater) {
  expect_unsupported("libno-such-driver.so.1", "cannot load the CUDA driver");
  ASSERT_EQ(::setenv("SLUICE_CUDA_DRIVER", SLUICE_CUDA_STAND_IN_FILE, 1), 0);
  const auto device = open_cuda_device(0);
  EXPECT_TRUE(device.has_value()) << device.error().text;
  EXPECT_TRUE(open_cuda_device(1).has_value());
}

}  // namespace
}  // namespace sluice::cuda
