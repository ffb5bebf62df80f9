// ncclNet_v6: NCCL 2.13 and newer. NCCL defines the order of the members.
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/net_entries.h"

namespace sluice::nccl::abi {

struct NetV6 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV6* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** comm);
  Result (*accept)(void* listener, void** comm);
  Result (*reg_mr)(void* comm, void* data, int size, int type, void** handle);
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
};

SLUICE_CHECK_LAYOUT(net_v6, NetV6);
SLUICE_CHECK_LAYOUT(net_props_v6, PropertiesV6);

extern "C" SLUICE_EXPORTED NetV6 ncclNetPlugin_v6;
NetV6 ncclNetPlugin_v6 = {
    .name = net_entry::name(),
    .init = [](Logger log) { return net_entry::init(log); },
    .devices = net_entry::devices,
    .get_properties = net_entry::properties<PropertiesV6>,
    .listen = net_entry::listen,
    .connect = net_entry::connect,
    .accept = net_entry::accept,
    .reg_mr = net_entry::register_memory<int>,
    .reg_mr_dma_buf = net_entry::register_dma_buf,
    .dereg_mr = net_entry::deregister_memory,
    .isend = net_entry::send<int>,
    .irecv = net_entry::receive<int>,
    .iflush = net_entry::flush,
    .test = net_entry::test,
    .close_send = net_entry::close_send,
    .close_recv = net_entry::close_receive,
    .close_listen = net_entry::close_listen,
};

}  // namespace sluice::nccl::abi
