// The table of point-to-point functions that the plugin exports to NCCL for each version of ncclNet.
#pragma once

#include "nccl_plugin/abi/layout_check.h"
#include "nccl_plugin/abi/member.h"
#include "nccl_plugin/abi/net_entries.h"

namespace sluice::nccl::abi {

// NetTable<N> is ncclNet_vN. NCCL defines the order and the signatures of the members.
template <int kVersion>
struct NetTable {
  template <typename First, typename... Later>
  using Call = Member<kVersion, First, Later...>;
  using RegisteredSize = std::conditional_t<(kVersion < 8), int, size_t>;
  using Size = std::conditional_t<(kVersion < 9), int, size_t>;

  const char* name = net_entry::name();
  Call<
      From<5, Result(Logger log)>, From<10, Result(Logger log, ProfilerCallback profiler)>,
      From<11, Result(void** context, uint64_t comm_id, void* config, Logger log, ProfilerCallback profiler)>>
      init = net_entry::init<kVersion>;
  Result (*devices)(int* count) = net_entry::devices;
  Result (*get_properties)(int device, Properties<kVersion>* properties) = net_entry::properties;
  Call<From<5, Result(int device, void* handle, void** listener)>,
       From<11, Result(void* context, int device, void* handle, void** listener)>>
      listen = net_entry::listen;
  Call<From<5, Result(int device, void* handle, void** comm)>,
       From<7, Result(int device, void* handle, void** comm, void** device_comm)>,
       From<10, Result(int device, void* config, void* handle, void** comm, void** device_comm)>,
       From<11, Result(void* context, int device, void* handle, void** comm, void** device_comm)>>
      connect = net_entry::connect;
  Call<From<5, Result(void* listener, void** comm)>,
       From<7, Result(void* listener, void** comm, void** device_comm)>>
      accept = net_entry::accept;
  Result (*reg_mr)(void* comm, void* data, RegisteredSize size, int type,
                   void** handle) = net_entry::register_memory;
  [[no_unique_address]] Call<
      From<6, Result(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** handle)>>
      reg_mr_dma_buf = net_entry::register_dma_buf;
  Result (*dereg_mr)(void* comm, void* handle) = net_entry::deregister_memory;
  Call<From<5, Result(void* comm, void* data, Size size, int tag, void* handle, void** request)>,
       From<10,
            Result(void* comm, void* data, Size size, int tag, void* handle, void* profile, void** request)>>
      isend = net_entry::send;
  Call<
      From<5, Result(void* comm, int n, void** data, Size* sizes, int* tags, void** handles, void** request)>,
      From<10, Result(void* comm, int n, void** data, Size* sizes, int* tags, void** handles, void** profiles,
                      void** request)>>
      irecv = net_entry::receive;
  Result (*iflush)(void* comm, int n, void** data, int* sizes, void** handles,
                   void** request) = net_entry::flush;
  Result (*test)(void* request, int* done, int* sizes) = net_entry::test;
  Result (*close_send)(void* comm) = net_entry::close_send;
  Result (*close_recv)(void* comm) = net_entry::close_receive;
  Result (*close_listen)(void* listener) = net_entry::close_listen;
  [[no_unique_address]] Call<From<7, Result(void* comm, void* handle, void** device_handle)>> get_device_mr =
      nullptr;
  [[no_unique_address]] Call<From<7, Result(void* comm, int n, void* request)>> irecv_consumed = nullptr;
  [[no_unique_address]] Call<From<9, Result(int* device, void* properties)>> make_vdevice = nullptr;
  [[no_unique_address]] Call<From<11, Result(void* context)>> finalize = net_entry::finalize;
  [[no_unique_address]] Call<From<11, Result(void* context, void* attributes)>> set_net_attr = nullptr;
};

}  // namespace sluice::nccl::abi
