#include "nccl_plugin/host/capabilities.h"

#include <mutex>

#include "core/revision.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"
#include "wire/frame.h"

namespace sluice::nccl {
namespace {

Capabilities decide(const Settings& s) {
  Capabilities result;
  const DeviceOptions options{.interfaces = s.interfaces, .speed_mbps = s.speed_mbps};
  const std::string remedy = s.no_pool ? "; unset SLUICE_COLOCATED=off, or list reducers in SLUICE_REDUCERS"
                                       : "; set SLUICE_REDUCERS, to \"none\" for co-located reducers only";
  if (!s.can_offload() && s.net != NetPolicy::kAlways) {
    result.off_reason = OffReason::kNoReducers;
    result.reason = "no reducers configured, so NCCL uses its own network" + remedy;
    result.is_warning = s.no_pool;
    return result;
  }
  if (const std::string rdma = active_rdma_device(options.sysfs);
      !rdma.empty() && s.net != NetPolicy::kAlways) {
    result.off_reason = OffReason::kRdmaActive;
    result.reason = "RDMA device " + rdma +
                    " is active, and NCCL's own network copies less on it than this plugin; set "
                    "SLUICE_NET=always to offload anyway";
    result.is_warning = true;
    return result;
  }
  result.net = find_devices(options);
  if (result.net.empty()) {
    result.off_reason = OffReason::kNoInterface;
    result.reason = s.interfaces.empty() ? "no network interface with an IPv4 or global IPv6 address is up"
                                         : "no active network interface matches \"" + s.interfaces +
                                               "\"; correct SLUICE_IFNAME (or NCCL_SOCKET_IFNAME)";
    result.is_warning = true;
    return result;
  }
  if (!s.can_offload()) {
    result.off_reason = OffReason::kNoReducers;
    result.reason = "no reducers configured, so only point-to-point traffic uses this plugin" + remedy;
    result.is_warning = s.no_pool;
    return result;
  }
  result.collnet = result.net;
  return result;
}

}  // namespace

const Capabilities& capabilities() {
  static const Capabilities decided = decide(settings());
  return decided;
}

void log_capabilities() noexcept {
  static std::once_flag logged;
  try {
    std::call_once(logged, [] {
      info("version %s, revision %s", SLUICE_VERSION, revision());
      const Capabilities& c = capabilities();
      std::string devices;
      for (const Device& d : c.net) devices += (devices.empty() ? "" : ", ") + d.name + " " + d.address;
      if (!c.collnet.empty()) {
        const Settings& s = settings();
        const std::string count = s.no_pool ? "no dedicated" : std::to_string(s.pool_size());
        info("protocol %u over %s, %s reducers configured%s%s", unsigned{wire::kVersionMax}, devices.c_str(),
             count.c_str(), s.source.empty() ? "" : " by ", s.source.c_str());
      } else if (c.is_warning) {
        warn("offload OFF (%s)", c.reason.c_str());
      } else {
        info("%s%soffload OFF (%s)", devices.c_str(), devices.empty() ? "" : ": ", c.reason.c_str());
      }
    });
  } catch (...) {  // a missing log line must not fail the job
  }
}

}  // namespace sluice::nccl
