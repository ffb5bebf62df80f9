// ncclCollNet_v10: NCCL 2.26 and newer. iallgather and ireducescatter are null, so NCCL does not
// use them. NCCL defines the order of the members.
#include "nccl_plugin/abi/collnet_entries.h"
#include "nccl_plugin/abi/layout_check.h"

namespace sluice::nccl::abi {

struct CollNetV10 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(void* handles[], int ranks, int rank, void* listener, void** comm);
  Result (*reduce_support)(int data_type, int op, int* supported);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** handle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** handle);
  Result (*dereg_mr)(void* comm, void* handle);
  Result (*iallreduce)(void* comm, void* send, void* receive, size_t count, int data_type, int op,
                       void* send_handle, void* receive_handle, void** request);
  Result (*iallgather)(void* comm, void* send, int parts, void* receive_parts, size_t bytes_per_rank,
                       size_t window_offset, size_t window_bytes, void* send_handle, void** request);
  Result (*ireducescatter)(void* comm, int parts, void* send_parts, void* receive, size_t bytes_per_rank,
                           size_t window_offset, size_t window_bytes, int data_type, int op,
                           void* receive_handle, void** request);
  Result (*iflush)(void* comm, void* data, int size, void* handle, void** request);
  Result (*test)(void* request, int* done, int* size);
  Result (*close_coll)(void* comm);
  Result (*close_listen)(void* listener);
  Result (*make_vdevice)(int* device, void* properties);
};

SLUICE_CHECK_LAYOUT(collnet_v10, CollNetV10);

extern "C" SLUICE_EXPORTED CollNetV10 ncclCollNetPlugin_v10;
CollNetV10 ncclCollNetPlugin_v10 = {
    .name = collnet_entry::name(),
    .init = [](Logger log) { return collnet_entry::init(log); },
    .devices = collnet_entry::devices,
    .get_properties = collnet_entry::properties<PropertiesV9>,
    .listen = collnet_entry::listen,
    .connect = collnet_entry::connect,
    .reduce_support = collnet_entry::reduce_support,
    .reg_mr = collnet_entry::register_memory,
    .reg_mr_dma_buf = collnet_entry::register_dma_buf,
    .dereg_mr = collnet_entry::deregister_memory,
    .iallreduce = collnet_entry::allreduce<size_t>,
    .iallgather = nullptr,
    .ireducescatter = nullptr,
    .iflush = collnet_entry::flush,
    .test = collnet_entry::test,
    .close_coll = collnet_entry::close_comm,
    .close_listen = collnet_entry::close_listen,
    .make_vdevice = nullptr,
};

}  // namespace sluice::nccl::abi
