// Checks the layouts against a table that was read from NCCL's headers (tests/nccl/abi/layouts.tsv). With the
// tests configured, a wrong size, order or signature does not compile.
#pragma once

#include <cstddef>

#define SLUICE_EXPORTED __attribute__((visibility("default")))

#ifdef SLUICE_CHECK_ABI
#include <sluice_abi_layouts.h>
#define SLUICE_CHECK_LAYOUT(layout, type) SLUICE_CHECK_LAYOUT_##layout(type)
#else
#define SLUICE_CHECK_LAYOUT(layout, type) static_assert(sizeof(type) > 0)
#endif
