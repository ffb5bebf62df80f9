// ncclNet_v10: NCCL 2.26 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/net_entries.h"

namespace sluice::nccl::abi {

using ProfilerCallback = Result (*)(void** event, int type, void* handle, int64_t plugin, void* data);

struct NetV10 {
  const char* name;
  Result (*init)(Logger log, ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* config, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** handle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** handle);
  Result (*dereg_mr)(void* comm, void* handle);
  Result (*isend)(void* comm, void* data, size_t size, int tag, void* handle, void* profile, void** request);
  Result (*irecv)(void* comm, int n, void** data, size_t* sizes, int* tags, void** handles, void** profiles,
                  void** request);
  Result (*iflush)(void* comm, int n, void** data, int* sizes, void** handles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* comm);
  Result (*close_recv)(void* comm);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* comm, void* handle, void** device_handle);
  Result (*irecv_consumed)(void* comm, int n, void* request);
  Result (*make_vdevice)(int* device, void* properties);
};

SLUICE_CHECK_LAYOUT(net_v10, NetV10);
SLUICE_CHECK_LAYOUT(net_props_v10, PropertiesV9);

extern "C" SLUICE_EXPORTED NetV10 ncclNetPlugin_v10;
NetV10 ncclNetPlugin_v10 = {
    .name = net_entry::name(),
    .init = [](Logger log, ProfilerCallback) { return net_entry::init(log); },
    .devices = net_entry::devices,
    .get_properties = net_entry::properties<PropertiesV9>,
    .listen = net_entry::listen,
    .connect = [](int device, void*, void* handle, void** comm,
                  void**) { return net_entry::connect(device, handle, comm); },
    .accept = [](void* listener, void** comm, void**) { return net_entry::accept(listener, comm); },
    .reg_mr = net_entry::register_memory<size_t>,
    .reg_mr_dma_buf = net_entry::register_dma_buf,
    .dereg_mr = net_entry::deregister_memory,
    .isend = [](void* comm, void* data, size_t size, int tag, void* handle, void*,
                void** request) { return net_entry::send(comm, data, size, tag, handle, request); },
    .irecv = [](void* comm, int n, void** data, size_t* sizes, int* tags, void** handles, void**,
                void** request) { return net_entry::receive(comm, n, data, sizes, tags, handles, request); },
    .iflush = net_entry::flush,
    .test = net_entry::test,
    .close_send = net_entry::close_send,
    .close_recv = net_entry::close_receive,
    .close_listen = net_entry::close_listen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_vdevice = nullptr,
};

}  // namespace sluice::nccl::abi
