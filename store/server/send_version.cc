#include "store/server/send_version.h"

#include <span>
#include <utility>

#include "store/model/body_values.h"

namespace sluice::store {

Status send_version(transport::tcp::MessageChannel& channel, const wire::Pull& request, HostedModel& model,
                    HostedModel::ReadableVersion& version, const std::shared_ptr<VersionReader>& reader) {
  const auto values = version.view.array(request.array);
  const auto wait_for = [&](uint64_t elements) -> Status {
    if (reader->has_ended()) return Errc::kAborted;
    const auto is_there = [&] { return model.wait_computed(version.progress.get(), elements); };
    return version.progress == nullptr || reader->excuse(is_there) ? Status() : Status(Errc::kClosed);
  };
  const auto stalled = [&]() -> Status {
    if (!reader->has_ended()) return {};
    model.end_view(std::move(version.view));
    return Errc::kAborted;
  };
  model.begin_reader(request.shard, reader);
  Status s;
  if (request.dtype == wire::DType::kF32) {
    uint64_t sent = 0;  // frames before the next one
    const auto needed = [&](uint64_t end) {
      reader->set_sent(std::exchange(sent, end));
      return wait_for(end / sizeof(float));
    };
    s = channel.send_body(std::as_bytes(values), needed, stalled);
  } else {
    const auto fill = [&](uint64_t offset, std::span<std::byte> piece) {
      reader->set_sent(offset);
      const auto part = values_of_piece(values, request.dtype, offset, piece);
      const Status there = wait_for(value_at(request.dtype, offset) + part.size());
      if (there.ok()) encode_body(request.dtype, part, piece.data());
      return there;
    };
    s = channel.send_pieces(body_bytes(request.dtype, values.size()), fill, stalled);
  }
  model.end_reader(request.shard, reader);
  return s;
}

}  // namespace sluice::store
