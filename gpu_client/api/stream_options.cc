#include "gpu_client/api/stream_options.h"

#include <cstddef>
#include <string>

#include "gpu_client/api/sized_struct.h"

namespace sluice::api {
namespace {

constexpr uint64_t kMaxStaging = 64 * kGiB;
constexpr uint32_t kSegmentMultiple = 64 * kKiB;

tl::unexpected<Error> invalid(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// The size of sluice_stream_options in the first release.
constexpr size_t kFirstSize = offsetof(sluice_stream_options, fusion_bytes) + sizeof(uint64_t);

Result<void> check_sizes(const sluice_stream_options& o) {
  if (o.piece_bytes == 0 || o.piece_bytes % kSegmentMultiple != 0)
    return invalid("piece_bytes " + std::to_string(o.piece_bytes) + " is not a multiple of 64 KiB");
  if (o.staging_bytes > kMaxStaging)
    return invalid("staging_bytes " + std::to_string(o.staging_bytes) + " exceeds 64 GiB");
  if (o.piece_bytes > o.staging_bytes / 4) {
    return invalid("piece_bytes " + std::to_string(o.piece_bytes) + " exceeds a quarter of staging_bytes " +
                   std::to_string(o.staging_bytes));
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
  return o;
}

Result<StreamSettings> read_stream_options(const sluice_stream_options& caller_options) {
  auto sized =
      read_sized_struct(caller_options, default_stream_options(), kFirstSize, "sluice_stream_options");
  if (!sized) return tl::unexpected(sized.error());
  const sluice_stream_options& o = *sized;
  if (auto checked = check_sizes(o); !checked) return tl::unexpected(checked.error());
  StreamSettings out;
  switch (o.device_kind) {
    case SLUICE_DEVICE_HOST: out.kind = SLUICE_DEVICE_HOST; break;
    case SLUICE_DEVICE_CUDA: out.kind = SLUICE_DEVICE_CUDA; break;
    default:
      return invalid("device_kind " + std::to_string(o.device_kind) +
                     ": expected SLUICE_DEVICE_HOST or SLUICE_DEVICE_CUDA");
  }
  if (o.device < -1)
    return invalid("device " + std::to_string(o.device) + ": expected the ordinal of a GPU or -1");
  out.device = o.device;
  switch (o.wire_dtype) {
    case SLUICE_WIRE_AS_GIVEN: break;
    case SLUICE_BF16: out.streams.cast = pipeline::WireCast::kBf16; break;
    case SLUICE_F16: out.streams.cast = pipeline::WireCast::kScaledF16; break;
    default:
      return invalid("wire_dtype " + std::to_string(o.wire_dtype) +
                     ": expected SLUICE_WIRE_AS_GIVEN, SLUICE_BF16 or SLUICE_F16");
  }
  const auto flag = [](const char* name, uint32_t value) -> Result<bool> {
    if (value > 1) return invalid(std::string(name) + " " + std::to_string(value) + ": expected 0 or 1");
    return value == 1;
  };
  const auto measure = flag("measure_error", o.measure_error);
  if (!measure) return tl::unexpected(measure.error());
  const auto staged = flag("always_staged", o.always_staged);
  if (!staged) return tl::unexpected(staged.error());
  if (*staged && out.kind == SLUICE_DEVICE_CUDA)
    return invalid(
        "always_staged requires SLUICE_DEVICE_HOST, because GPU copies of host memory would block the "
        "caller");
  out.streams.staging_bytes = o.staging_bytes;
  out.streams.segment_bytes = o.piece_bytes;
  out.streams.measure_error = *measure;
  out.streams.always_staged = *staged;
  out.streams.fusion_bytes = o.fusion_bytes;
  return out;
}

}  // namespace sluice::api
