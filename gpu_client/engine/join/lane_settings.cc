#include "gpu_client/engine/join/lane_settings.h"

#include <charconv>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "config/lane_transport.h"
#include "config/name_list.h"

namespace sluice::engine {
namespace {

std::string transport_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The variable's value, in min..255; `otherwise` when the variable is unset or empty.
Result<int> number_variable(const char* name, int min, int otherwise) {
  const std::string text = transport_variable(name);
  if (text.empty()) return otherwise;
  const char* const end = text.data() + text.size();
  int value = 0;
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < min || value > 255)
    return fail(Errc::kInvalidArgument, std::string("variable ") + name + ": expected an integer in " +
                                            std::to_string(min) + "..255, found \"" + text + "\"");
  return value;
}

}  // namespace

Result<LaneSettings> read_lane_settings() {
  const std::string transport = transport_variable("SLUICE_TRANSPORT");
  const auto choice = config::parse_lane_transport(transport.empty() ? "auto" : transport);
  if (!choice) return add_context("variable SLUICE_TRANSPORT", choice.error());
  LaneSettings settings;
  const std::string zeros = transport_variable("SLUICE_ZERO_BLOCKS");
  if (!zeros.empty() && zeros != "skip" && zeros != "send")
    return fail(Errc::kInvalidArgument,
                "variable SLUICE_ZERO_BLOCKS: expected skip or send, found \"" + zeros + "\"");
  settings.sparse = zeros != "send";
  settings.rdma = *choice != config::LaneTransport::kTcp;
  settings.rdma_required = *choice == config::LaneTransport::kRdma;
  settings.choice.allows = config::port_filter(transport_variable("SLUICE_IB_HCA"));
  const auto index = number_variable("SLUICE_IB_GID_INDEX", -1, settings.choice.gid_index);
  if (!index) return tl::unexpected(index.error());
  const auto traffic_class = number_variable("SLUICE_IB_TC", 0, settings.choice.traffic_class);
  if (!traffic_class) return tl::unexpected(traffic_class.error());
  settings.choice.gid_index = *index;
  settings.choice.traffic_class = static_cast<uint8_t>(*traffic_class);
  if (!settings.rdma) return settings;
  auto rails = transport::rdma::find_rails(settings.choice);
  if (rails) {
    settings.rails = std::move(*rails);
    settings.memory = transport::rdma::Memory::make();
  } else if (settings.rdma_required) {
    return add_context("variable SLUICE_TRANSPORT is rdma", rails.error());
  } else {
    settings.rdma = false;
    settings.rdma_error = rails.error().text;
  }
  return settings;
}

}  // namespace sluice::engine
