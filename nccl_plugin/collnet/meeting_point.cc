#include "nccl_plugin/collnet/meeting_point.h"

#include <charconv>
#include <memory>
#include <utility>

#include "gpu_client/engine/join/colocation_agreement.h"

namespace sluice::nccl::collnet {

using colocated::LocalReducer;
using colocated::LocalReducerRequest;

Result<void> open_meeting_point(engine::JoinOptions& join, const std::string& address,
                                std::string& announcement) {
  auto started = engine::start_local_reducer(join, join.identity, address, 0);
  if (!started) return add_context("co-located reducer", started.error());
  announcement = std::to_string((*started)->port());
  // The session asks for its reducer once. If it fails before, the reducer ends with the options.
  const auto reducer = std::make_shared<std::unique_ptr<LocalReducer>>(std::move(*started));
  join.colocation.start_reducer =
      [reducer](const LocalReducerRequest&) -> Result<std::unique_ptr<LocalReducer>> {
    if (*reducer == nullptr)
      return fail(Errc::kUnsupported, "the session has its co-located reducer already");
    return std::move(*reducer);
  };
  return {};
}

Result<void> set_meeting_point(engine::JoinOptions& join, const std::string& address,
                               const std::string& announcement) {
  uint16_t port = 0;
  const char* const last = announcement.data() + announcement.size();
  const auto [end, error] = std::from_chars(announcement.data(), last, port);
  if (error != std::errc() || end != last || port == 0)
    return fail(Errc::kBadField, "the coordinator announced no port of its co-located reducer");
  join.colocation.rendezvous = {.host = address, .port = port};
  return {};
}

}  // namespace sluice::nccl::collnet
