// The table of collective functions that the plugin exports to NCCL for each version of ncclCollNet.
#pragma once

#include "nccl_plugin/abi/collnet_entries.h"
#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/member.h"

namespace sluice::nccl::abi {

// CollNetTable<N> is ncclCollNet_vN. NCCL defines the order and the signatures of the members.
template <int kVersion>
struct CollNetTable {
  template <typename First, typename... Later>
  using Call = Member<kVersion, First, Later...>;
  using Count = std::conditional_t<(kVersion < 9), int, size_t>;

  const char* name = net_entry::name();  // equal, because NCCL merges the devices of both by name
  // NCCL calls it for every communicator, also without CollNet, so it must not use the network.
  Call<From<8, Result(Logger log)>, From<11, Result(void** context, uint64_t comm_id, Logger log)>> init =
      collnet_entry::init;
  Result (*devices)(int* count) = collnet_entry::devices;
  Result (*get_properties)(int device, Properties<kVersion>* properties) = net_entry::properties;
  Call<From<8, Result(int device, void* handle, void** listener)>,
       From<11, Result(void* context, int device, void* handle, void** listener)>>
      listen = collnet_entry::listen;
  Result (*connect)(void* handles[], int ranks, int rank, void* listener,
                    void** comm) = collnet_entry::connect;
  Result (*reduce_support)(int data_type, int op, int* supported) = collnet_entry::reduce_support;
  Result (*reg_mr)(void* comm, void* data, size_t size, int type,
                   void** handle) = collnet_entry::register_memory;
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** handle) = net_entry::register_dma_buf;
  Result (*dereg_mr)(void* comm, void* handle) = collnet_entry::deregister_memory;
  Result (*iallreduce)(void* comm, void* send, void* receive, Count count, int data_type, int op,
                       void* send_handle, void* receive_handle, void** request) = collnet_entry::allreduce;
  // Null, so NCCL does not use these two.
  Result (*iallgather)(void* comm, void* send, int parts, void* receive_parts, size_t bytes_per_rank,
                       size_t window_offset, size_t window_bytes, void* send_handle,
                       void** request) = nullptr;
  Result (*ireducescatter)(void* comm, int parts, void* send_parts, void* receive, size_t bytes_per_rank,
                           size_t window_offset, size_t window_bytes, int data_type, int op,
                           void* receive_handle, void** request) = nullptr;
  Result (*iflush)(void* comm, void* data, int size, void* handle, void** request) = collnet_entry::flush;
  Result (*test)(void* request, int* done, int* size) = collnet_entry::test;
  Result (*close_coll)(void* comm) = collnet_entry::close_comm;
  Result (*close_listen)(void* listener) = collnet_entry::close_listen;
  [[no_unique_address]] Call<From<9, Result(int* device, void* properties)>> make_vdevice = nullptr;
  [[no_unique_address]] Call<From<11, Result(void* context)>> finalize = net_entry::finalize;
};

}  // namespace sluice::nccl::abi
