#pragma once

#include <memory>

#include "tests/conformance/device/bed.h"

namespace sluice::pipeline::test {

// Has the process load the driver that plays GPUs. To be called before anything else asks for a driver.
void use_stand_in();

[[nodiscard]] std::unique_ptr<Bed> make_cuda_bed(bool one_queue);

}  // namespace sluice::pipeline::test
