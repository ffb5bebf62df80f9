#include "tests/nccl/player/plugin.h"

#include "tests/nccl/player/failure.h"

namespace player {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 40;  // NCCL's limit

void check_facts(const DeviceFacts& facts, int device, int abi) {
  const std::string prefix = "device " + std::to_string(device) + " (" + facts.name + "): ";
  require(!facts.name.empty(), prefix + "the name is empty");
  require((facts.ptr_support & kPointerHost) != 0, prefix + "host memory is not supported");
  require(facts.speed > 0, prefix + "speed is not positive");
  require(facts.max_comms > 0, prefix + "maxComms is not positive");
  require(facts.max_recvs >= 1 && facts.max_recvs <= 8, prefix + "maxRecvs is not in 1..8");
  require(facts.net_device_type == 0, prefix + "not a host device");
  require(facts.max_p2p_bytes > 0 && facts.max_p2p_bytes <= kMaxBytes,
          prefix + "maxP2pBytes is out of range");
  require(facts.max_coll_bytes > 0 && facts.max_coll_bytes <= kMaxBytes,
          prefix + "maxCollBytes is out of range");
  require(facts.virtual_devices == 1, prefix + "vProps.ndevs is " + std::to_string(facts.virtual_devices));
  if (abi >= 9) require(facts.first_virtual_device == device, prefix + "vProps.devs[0] is not the device");
  require(facts.max_multi_request_size >= 0 && facts.max_multi_request_size <= 8,
          prefix + "maxMultiRequestSize is not in 0..8");
  require(facts.rail_id >= -1 && facts.plane_id >= -1, prefix + "railId or planeId is less than -1");
  require(facts.reg_is_global == 0 || facts.reg_is_global == 1, prefix + "regIsGlobal is not 0 or 1");
  require(facts.force_flush == 0 || facts.force_flush == 1, prefix + "forceFlush is not 0 or 1");
}

}  // namespace

Plugin::Plugin(const Options& options, CollNetUse collnet_use)
    : abi_(options.abi),
      library_(options.plugin),
      net_(load_net(library_, options.abi)),
      collnet_use_(collnet_use) {
  require(!net_->name().empty(), "the net has no name before init");
  if (collnet_use == CollNetUse::kIfOffered && options.abi < kFirstCollNetAbi) return;
  collnet_ = load_collnet(library_, options.abi);
}

constexpr int kCrashesWithContext = 22803;

Contexts Plugin::init(uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  Contexts contexts;
  const bool call_init = !initialized_ || net_->init_per_communicator();
  if (call_init) require_success(net_->init(comm_id, &contexts.net), "net init");
  if (!initialized_) {
    int devices = -1;
    require_success(net_->devices(&devices), "net devices");
    require(devices > 0, "the net has no devices");
  }
  if (collnet_ != nullptr) {
    if (call_init) require_success(collnet_->init(comm_id, &contexts.collnet), "CollNet init");
    require(played_release != kCrashesWithContext || contexts.collnet == nullptr,
            "2.28.3 crashes with a context of a CollNet that it does not use");
    if (!initialized_) {
      int devices = -1;
      require_success(collnet_->devices(&devices), "CollNet devices");
      if (devices == 0 && collnet_use_ == CollNetUse::kIfOffered) collnet_.reset();
      require(collnet_ == nullptr || (devices > 0 && devices <= 32),
              "CollNet has " + std::to_string(devices) + " devices");
    }
  }
  initialized_ = true;
  check_devices();
  return contexts;
}

void Plugin::finalize(const Contexts& contexts) {
  const std::lock_guard lock(mutex_);
  if (collnet_ != nullptr) require_success(collnet_->finalize(contexts.collnet), "CollNet finalize");
  require_success(net_->finalize(contexts.net), "net finalize");
}

void Plugin::check_devices() {
  int net_devices = 0, collnet_devices = 0;
  require_success(net_->devices(&net_devices), "net devices");
  if (collnet_ != nullptr) {
    require_success(collnet_->devices(&collnet_devices), "CollNet devices");
    require(collnet_devices == net_devices, "CollNet and net have different numbers of devices");
  }
  for (int device = 0; device < net_devices; ++device) {
    DeviceFacts coll, net;
    if (collnet_ != nullptr) require_success(collnet_->properties(device, &coll), "CollNet getProperties");
    require_success(net_->properties(device, &net), "net getProperties");
    check_facts(net, device, abi_);
    // NCCL merges both lists by name and keeps the properties from CollNet.
    if (collnet_ != nullptr)
      require(coll == net, "device " + net.name + ": CollNet and net return different properties");
  }
}

}  // namespace player
