#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "gpu_client/api/options.h"
#include "gpu_client/api/sized_struct.h"

namespace sluice::api {
namespace {

constexpr uint64_t kMaxStaging = 64 * kGiB;
constexpr uint32_t kSegmentMultiple = 64 * kKiB;
// The size of the struct in the first release.
constexpr size_t kFirstStreamSize = offsetof(sluice_stream_options, fusion_bytes) + sizeof(uint64_t);

tl::unexpected<Error> invalid_option(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct WireType {
  std::string_view name;  // in SLUICE_WIRE
  int32_t dtype;          // sluice_stream_options.wire_dtype
  pipeline::WireCast cast;
};
constexpr WireType kWireTypes[] = {{"f32", SLUICE_WIRE_AS_GIVEN, pipeline::WireCast::kNone},
                                   {"bf16", SLUICE_BF16, pipeline::WireCast::kBf16},
                                   {"f16", SLUICE_F16, pipeline::WireCast::kScaledF16},
                                   {"mxfp8", SLUICE_MXFP8, pipeline::WireCast::kMxfp8},
                                   {"int8", SLUICE_INT8_BLOCK, pipeline::WireCast::kInt8Block}};

// Reads SLUICE_WIRE; SLUICE_WIRE_AS_GIVEN without it.
Result<int32_t> read_wire_variable() {
  const std::string_view value = variable("SLUICE_WIRE");
  if (value.empty()) return SLUICE_WIRE_AS_GIVEN;
  for (const WireType& type : kWireTypes) {
    if (type.name == value) return type.dtype;
  }
  return invalid_option("variable SLUICE_WIRE: \"" + std::string(value) +
                        "\": expected f32, bf16, f16, mxfp8 or int8");
}

Result<uint32_t> read_strict_variable() {
  const std::string_view value = variable("SLUICE_WIRE_STRICT");
  if (value.empty() || value == "0") return 0;
  if (value == "1") return 1;
  return invalid_option("variable SLUICE_WIRE_STRICT: \"" + std::string(value) + "\": expected 0 or 1");
}

Result<void> check_sizes(const sluice_stream_options& o) {
  if (o.piece_bytes == 0 || o.piece_bytes % kSegmentMultiple != 0)
    return invalid_option("piece_bytes " + std::to_string(o.piece_bytes) + " is not a multiple of 64 KiB");
  if (o.staging_bytes > kMaxStaging)
    return invalid_option("staging_bytes " + std::to_string(o.staging_bytes) + " exceeds 64 GiB");
  if (o.piece_bytes > o.staging_bytes / 4) {
    return invalid_option("piece_bytes " + std::to_string(o.piece_bytes) +
                          " exceeds a quarter of staging_bytes " + std::to_string(o.staging_bytes));
  }
  return {};
}

}  // namespace

sluice_stream_options default_stream_options() noexcept {
  const pipeline::StreamsOptions streams;
  sluice_stream_options o{};
  o.struct_size = sizeof o;
  o.device_kind = SLUICE_DEVICE_HOST;
  o.device = -1;
  o.staging_bytes = streams.staging_bytes;
  o.piece_bytes = streams.segment_bytes;
  o.wire_dtype = SLUICE_WIRE_AS_GIVEN;
  o.fusion_bytes = streams.fusion_bytes;
  try {
    if (const auto wire = read_wire_variable()) o.wire_dtype = *wire;
    if (const auto strict = read_strict_variable()) o.wire_strict = *strict;
  } catch (const std::exception&) {
    // Out of memory for the error text; read_stream_options() reports the error.
  }
  return o;
}

Result<StreamSettings> read_stream_options(const sluice_stream_options& caller_options) {
  if (auto wire = read_wire_variable(); !wire) return tl::unexpected(wire.error());
  if (auto strict = read_strict_variable(); !strict) return tl::unexpected(strict.error());
  auto sized =
      read_sized_struct(caller_options, default_stream_options(), kFirstStreamSize, "sluice_stream_options");
  if (!sized) return tl::unexpected(sized.error());
  const sluice_stream_options& o = *sized;
  if (auto checked = check_sizes(o); !checked) return tl::unexpected(checked.error());
  StreamSettings out;
  switch (o.device_kind) {
    case SLUICE_DEVICE_HOST: out.kind = SLUICE_DEVICE_HOST; break;
    case SLUICE_DEVICE_CUDA: out.kind = SLUICE_DEVICE_CUDA; break;
    default:
      return invalid_option("device_kind " + std::to_string(o.device_kind) +
                            ": expected SLUICE_DEVICE_HOST or SLUICE_DEVICE_CUDA");
  }
  if (o.device < -1)
    return invalid_option("device " + std::to_string(o.device) + ": expected the ordinal of a GPU or -1");
  out.device = o.device;
  const auto* const type = std::ranges::find(kWireTypes, o.wire_dtype, &WireType::dtype);
  if (type == std::end(kWireTypes)) {
    return invalid_option("wire_dtype " + std::to_string(o.wire_dtype) +
                          ": expected SLUICE_WIRE_AS_GIVEN, or SLUICE_ and BF16, F16, MXFP8 or INT8_BLOCK");
  }
  out.streams.cast = type->cast;
  const auto flag = [](const char* name, uint32_t value) -> Result<bool> {
    if (value > 1)
      return invalid_option(std::string(name) + " " + std::to_string(value) + ": expected 0 or 1");
    return value == 1;
  };
  const auto measure = flag("measure_error", o.measure_error);
  if (!measure) return tl::unexpected(measure.error());
  const auto staged = flag("always_staged", o.always_staged);
  if (!staged) return tl::unexpected(staged.error());
  if (*staged && out.kind == SLUICE_DEVICE_CUDA)
    return invalid_option(
        "always_staged requires SLUICE_DEVICE_HOST, because GPU copies of host memory would block the "
        "caller");
  const auto stochastic = flag("stochastic_rounding", o.stochastic_rounding);
  if (!stochastic) return tl::unexpected(stochastic.error());
  const auto strict = flag("wire_strict", o.wire_strict);
  if (!strict) return tl::unexpected(strict.error());
  out.streams.stochastic_rounding = *stochastic;
  out.wire_strict = *strict;
  out.streams.min_cast_count = o.wire_min_count;
  out.streams.staging_bytes = o.staging_bytes;
  out.streams.segment_bytes = o.piece_bytes;
  out.streams.measure_error = *measure;
  out.streams.always_staged = *staged;
  out.streams.fusion_bytes = o.fusion_bytes;
  return out;
}

}  // namespace sluice::api
