// The copies and conversions of a GPU, done by the CPU. The results have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::host {

// These do at once what Device::gather, scatter and find_exponents enqueue. gather() adds to `error` if
// cast.measure.
void gather(std::span<const pipeline::BufferRange> ranges, std::byte* staging, const pipeline::Cast& cast,
            pipeline::CastError& error) noexcept;
void scatter(const std::byte* staging, std::span<const pipeline::BufferRange> ranges,
             const pipeline::Cast& cast) noexcept;
void find_exponents(std::span<const pipeline::BufferRange> ranges, uint8_t* exponents) noexcept;

}  // namespace sluice::host
