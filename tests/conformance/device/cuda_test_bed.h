#pragma once

#include <memory>

#include "tests/conformance/device/device_test_bed.h"

namespace sluice::pipeline::test {

// Makes the process load the fake CUDA driver. Call before any other use of a driver.
void use_stand_in();

[[nodiscard]] std::unique_ptr<DeviceTestBed> make_cuda_test_bed(bool one_queue);

}  // namespace sluice::pipeline::test
