#include "nccl_plugin/host/offer.h"

#include <mutex>

#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"
#include "wire/frame.h"

namespace sluice::nccl {
namespace {

Offer decide(const Settings& s) {
  Offer offer;
  const DeviceRules rules{.interfaces = s.interfaces, .speed_mbps = s.speed_mbps};
  if (s.pool_size() == 0 && s.net != NetPolicy::kAlways) {
    offer.why = "no reducers are configured (SLUICE_REDUCERS); NCCL keeps its own network";
    return offer;
  }
  if (const std::string rdma = active_rdma_device(rules.sysfs);
      !rdma.empty() && s.net != NetPolicy::kAlways) {
    offer.why = "RDMA device " + rdma +
                " is active, and NCCL's own network copies less over it than this plugin's; NCCL keeps it, "
                "without offload (SLUICE_NET=always overrides)";
    offer.warning = true;
    return offer;
  }
  offer.net = find_devices(rules);
  if (offer.net.empty()) {
    offer.why = s.interfaces.empty() ? "no network interface is up"
                                     : "no interface that is up matches " + s.interfaces;
    offer.warning = true;
    return offer;
  }
  if (s.pool_size() == 0) {
    offer.why = "no reducers are configured (SLUICE_REDUCERS): point-to-point only";
    return offer;
  }
  offer.collnet = offer.net;
  return offer;
}

}  // namespace

const Offer& offer() {
  static const Offer decided = decide(settings());
  return decided;
}

void tell_offer() noexcept {
  static std::once_flag told;
  try {
    std::call_once(told, [] {
      const Offer& o = offer();
      std::string devices;
      for (const Device& d : o.net) devices += (devices.empty() ? "" : ", ") + d.name + " " + d.address;
      if (!o.collnet.empty()) {
        const Settings& s = settings();
        info("protocol %u by %s, %zu reducers configured%s%s", unsigned{wire::kVersionMax}, devices.c_str(),
             s.pool_size(), s.source.empty() ? "" : " by ", s.source.c_str());
      } else if (o.warning) {
        warn("%s", o.why.c_str());
      } else {
        info("%s%s%s", devices.c_str(), devices.empty() ? "" : ": ", o.why.c_str());
      }
    });
  } catch (...) {  // a line of the log is not worth the job
  }
}

}  // namespace sluice::nccl
