#include "tests/nccl/player/plugin.h"

#include "tests/nccl/player/failure.h"

namespace player {
namespace {

constexpr size_t kMostBytes = size_t{1} << 40;  // what NCCL takes as a limit of a device

void check_facts(const DeviceFacts& facts, int device, int abi) {
  const std::string who = "device " + std::to_string(device) + " (" + facts.name + "): ";
  require(!facts.name.empty(), who + "no name");
  require((facts.ptr_support & kPointerHost) != 0, who + "host memory is not supported");
  require(facts.speed > 0, who + "no speed");
  require(facts.max_comms > 0, who + "maxComms");
  require(facts.max_recvs >= 1 && facts.max_recvs <= 8, who + "maxRecvs");
  require(facts.net_device_type == 0, who + "is no host device");
  require(facts.max_p2p_bytes > 0 && facts.max_p2p_bytes <= kMostBytes, who + "maxP2pBytes");
  require(facts.max_coll_bytes > 0 && facts.max_coll_bytes <= kMostBytes, who + "maxCollBytes");
  require(facts.virtual_devices == 1, who + "vProps.ndevs is " + std::to_string(facts.virtual_devices));
  if (abi >= 9) require(facts.first_virtual_device == device, who + "vProps.devs[0]");
  require(facts.max_multi_request_size >= 0 && facts.max_multi_request_size <= 8,
          who + "maxMultiRequestSize");
  require(facts.rail_id >= -1 && facts.plane_id >= -1, who + "railId, planeId");
  require(facts.reg_is_global == 0 || facts.reg_is_global == 1, who + "regIsGlobal");
  require(facts.force_flush == 0 || facts.force_flush == 1, who + "forceFlush");
}

}  // namespace

Plugin::Plugin(const Options& options, Want want)
    : abi_(options.abi), library_(options.plugin), net_(load_net(library_, options.abi)), want_(want) {
  require(!net_->name().empty(), "the net has no name before init");
  if (want == Want::kIfOffered && options.abi < kFirstCollNetAbi) return;
  collnet_ = load_collnet(library_, options.abi);
}

Contexts Plugin::begin(uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  Contexts contexts;
  const bool call_init = !begun_ || net_->init_per_communicator();
  if (call_init) require_success(net_->init(comm_id, &contexts.net), "net init");
  if (!begun_) {
    int devices = -1;
    require_success(net_->devices(&devices), "net devices");
    require(devices > 0, "the net offers no device");
  }
  if (collnet_ != nullptr) {
    if (call_init) require_success(collnet_->init(comm_id, &contexts.collnet), "CollNet init");
    if (!begun_) {
      int devices = -1;
      require_success(collnet_->devices(&devices), "CollNet devices");
      if (devices == 0 && want_ == Want::kIfOffered) collnet_.reset();
      require(collnet_ == nullptr || (devices > 0 && devices <= 32),
              "CollNet offers " + std::to_string(devices) + " devices");
    }
  }
  begun_ = true;
  check_devices();
  return contexts;
}

void Plugin::end(const Contexts& contexts) {
  const std::lock_guard lock(mutex_);
  if (collnet_ != nullptr) require_success(collnet_->finalize(contexts.collnet), "CollNet finalize");
  require_success(net_->finalize(contexts.net), "net finalize");
}

void Plugin::check_devices() {
  int of_net = 0, of_collnet = 0;
  require_success(net_->devices(&of_net), "net devices");
  if (collnet_ != nullptr) {
    require_success(collnet_->devices(&of_collnet), "CollNet devices");
    require(of_collnet == of_net, "CollNet and net differ in their number of devices");
  }
  for (int device = 0; device < of_net; ++device) {
    DeviceFacts coll, net;
    if (collnet_ != nullptr) require_success(collnet_->properties(device, &coll), "CollNet getProperties");
    require_success(net_->properties(device, &net), "net getProperties");
    check_facts(net, device, abi_);
    // NCCL merges the two lists by name and keeps what CollNet says.
    if (collnet_ != nullptr)
      require(coll == net, "device " + net.name + ": CollNet and net say different things");
  }
}

}  // namespace player
