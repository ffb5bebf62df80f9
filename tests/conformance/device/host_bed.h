#pragma once

#include <memory>

#include "tests/conformance/device/bed.h"

namespace sluice::pipeline::test {

[[nodiscard]] std::unique_ptr<Bed> make_host_bed();

}  // namespace sluice::pipeline::test
