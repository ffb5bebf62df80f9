// The parts that the adapters of NetTable, CollNetTable and TunerTable have in common.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/net.h"
#include "tests/nccl/player/net_props.h"

namespace player {

// Creates the adapter of a table in version `abi`, which is one of kFirst to kLast. Throws Failure for other
// versions, and if the file has no such table.
template <typename Interface, template <int> typename Adapter, int kFirst, int kLast>
std::unique_ptr<Interface> load_adapter(const Library& library, const char* family, int abi) {
  if constexpr (kFirst > kLast) {
    throw Failure(std::string("no ABI version ") + std::to_string(abi) + " of " + family);
  } else if (abi != kFirst) {
    return load_adapter<Interface, Adapter, kFirst + 1, kLast>(library, family, abi);
  } else {
    using Table = typename Adapter<kFirst>::Table;
    return std::make_unique<Adapter<kFirst>>(static_cast<Table*>(library.table(family, abi)));
  }
}

// NCCL passes uninitialized memory. A field that the plugin does not write keeps this pattern.
inline constexpr unsigned char kUninitialized = 0xa5;

template <typename From, typename To>
void copy_field(From from, To& to) {
  to = from;
}
template <typename Field, typename To>
void copy_field(Absent<Field>, To&) {}

template <int kAbi>
DeviceFacts facts_of(const Props<kAbi>& props) {
  DeviceFacts facts;
  facts.name = props.name;
  if (props.pci_path != nullptr) facts.pci_path = props.pci_path;
  facts.guid = props.guid;
  facts.ptr_support = props.ptr_support;
  facts.speed = props.speed;
  facts.port = props.port;
  facts.latency = props.latency;
  facts.max_comms = props.max_comms;
  facts.max_recvs = props.max_recvs;
  copy_field(props.net_device_type, facts.net_device_type);
  copy_field(props.reg_is_global, facts.reg_is_global);
  copy_field(props.force_flush, facts.force_flush);
  if constexpr (kAbi >= 9) {
    facts.virtual_devices = props.vprops.ndevs;
    facts.first_virtual_device = props.vprops.devs[0];
  }
  copy_field(props.max_p2p_bytes, facts.max_p2p_bytes);
  copy_field(props.max_coll_bytes, facts.max_coll_bytes);
  copy_field(props.max_multi_request_size, facts.max_multi_request_size);
  copy_field(props.rail_id, facts.rail_id);
  copy_field(props.plane_id, facts.plane_id);
  return facts;
}

// TableAdapter implements DeviceCalls, the base of Net and CollNet, for their tables.
template <typename Interface, typename TableType, int kAbi>
class TableAdapter : public Interface {
 public:
  using Table = TableType;

  std::string name() const override { return table_->name; }
  Result devices(int* count) override { return table_->devices(count); }
  Result properties(int device, DeviceFacts* facts) override {
    Props<kAbi> props;
    std::memset(static_cast<void*>(&props), kUninitialized, sizeof(props));
    const Result result = table_->get_properties(device, &props);
    if (result == kSuccess) *facts = facts_of(props);
    return result;
  }
  Result listen(void* context, int device, void* handle, void** listener) override {
    if constexpr (kAbi >= 11) {
      return table_->listen(context, device, handle, listener);
    } else {
      return table_->listen(device, handle, listener);
    }
  }
  Result dereg_mr(void* comm, void* mhandle) override { return table_->dereg_mr(comm, mhandle); }
  Result test(void* request, int* done, int* bytes) override { return table_->test(request, done, bytes); }
  Result close_listen(void* listener) override { return table_->close_listen(listener); }
  Result finalize(void* context) override {
    if constexpr (kAbi >= 11) {
      return table_->finalize(context);
    } else {
      return kSuccess;
    }
  }

 protected:
  // Throws Failure if a function is missing. `kind` is "net" or "CollNet"; `has_others`: the table has the
  // required functions that the other kind lacks.
  TableAdapter(Table* table, const std::string& kind, bool has_others) : table_(table) {
    const bool complete = has_others && table->name && table->init && table->devices &&
                          table->get_properties && table->listen && table->connect && table->reg_mr &&
                          table->dereg_mr && table->iflush && table->test && table->close_listen;
    require(complete, kind + " table: a required function is missing");
    if constexpr (kAbi >= 11) require(table->finalize != nullptr, kind + " table: finalize is missing");
  }

  Table* const table_;
};

}  // namespace player
