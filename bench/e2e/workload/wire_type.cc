#include "bench/e2e/workload/wire_type.h"

#include <fmt/format.h>
#include <sluice/streams.h>

#include <algorithm>
#include <iterator>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::bench {
namespace {

using pipeline::WireCast;

struct WireType {
  const char* name;
  WireCast cast;
  int32_t dtype;
};
constexpr WireType kWireTypes[] = {{"given", WireCast::kNone, SLUICE_WIRE_AS_GIVEN},
                                   {"f32", WireCast::kNone, SLUICE_WIRE_AS_GIVEN},  // in SLUICE_WIRE
                                   {"bf16", WireCast::kBf16, SLUICE_BF16},
                                   {"f16", WireCast::kScaledF16, SLUICE_F16},
                                   {"mxfp8", WireCast::kMxfp8, SLUICE_MXFP8},
                                   {"int8", WireCast::kInt8Block, SLUICE_INT8_BLOCK}};

const WireType& find(WireCast cast) noexcept {
  return *std::ranges::find(kWireTypes, cast, &WireType::cast);
}

}  // namespace

WireCast parse_wire(const std::string& text) {
  const auto* const found = std::ranges::find(kWireTypes, text, &WireType::name);
  if (found != std::end(kWireTypes)) return found->cast;
  throw Failure(kExitUsage, fmt::format("--wire \"{}\": expected given, bf16, f16, mxfp8 or int8", text));
}

const char* wire_name(WireCast cast) noexcept {
  return find(cast).name;
}

int32_t wire_dtype_of(WireCast cast) noexcept {
  return find(cast).dtype;
}

}  // namespace sluice::bench
