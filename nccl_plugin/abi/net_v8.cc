// ncclNet_v8: NCCL 2.20 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/net_entries.h"

namespace sluice::nccl::abi {

struct NetV8 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** handle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** handle);
  Result (*dereg_mr)(void* comm, void* handle);
  Result (*isend)(void* comm, void* data, int size, int tag, void* handle, void** request);
  Result (*irecv)(void* comm, int n, void** data, int* sizes, int* tags, void** handles, void** request);
  Result (*iflush)(void* comm, int n, void** data, int* sizes, void** handles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* comm);
  Result (*close_recv)(void* comm);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* comm, void* handle, void** device_handle);
  Result (*irecv_consumed)(void* comm, int n, void* request);
};

SLUICE_CHECK_LAYOUT(net_v8, NetV8);
SLUICE_CHECK_LAYOUT(net_props_v8, PropertiesV8);

extern "C" SLUICE_EXPORTED NetV8 ncclNetPlugin_v8;
NetV8 ncclNetPlugin_v8 = {
    .name = net_entry::name(),
    .init = [](Logger log) { return net_entry::init(log); },
    .devices = net_entry::devices,
    .get_properties = net_entry::properties<PropertiesV8>,
    .listen = net_entry::listen,
    .connect = [](int device, void* handle, void** comm,
                  void**) { return net_entry::connect(device, handle, comm); },
    .accept = [](void* listener, void** comm, void**) { return net_entry::accept(listener, comm); },
    .reg_mr = net_entry::register_memory<size_t>,
    .reg_mr_dma_buf = net_entry::register_dma_buf,
    .dereg_mr = net_entry::deregister_memory,
    .isend = net_entry::send<int>,
    .irecv = net_entry::receive<int>,
    .iflush = net_entry::flush,
    .test = net_entry::test,
    .close_send = net_entry::close_send,
    .close_recv = net_entry::close_receive,
    .close_listen = net_entry::close_listen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
};

}  // namespace sluice::nccl::abi
