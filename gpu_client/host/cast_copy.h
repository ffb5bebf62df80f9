// What a GPU's copies and casts do, done by the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::host {

// As Device::gather, scatter and find_exponents have it, at once. `error` is added to where cast.measure.
void gather(std::span<const pipeline::Segment> segments, std::byte* staging, const pipeline::Cast& cast,
            pipeline::CastError& error) noexcept;
void scatter(const std::byte* staging, std::span<const pipeline::Segment> segments,
             const pipeline::Cast& cast) noexcept;
void find_exponents(std::span<const pipeline::Segment> segments, uint8_t* exponents) noexcept;

}  // namespace sluice::host
