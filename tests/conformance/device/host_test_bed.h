#pragma once

#include <memory>

#include "tests/conformance/device/device_test_bed.h"

namespace sluice::pipeline::test {

[[nodiscard]] std::unique_ptr<DeviceTestBed> make_host_test_bed();

}  // namespace sluice::pipeline::test
