// The tables that a plugin exports for point-to-point traffic, per version. layout_checks.cc compares them
// with ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/net_props.h"

namespace player {

struct NetConfig {  // v10 on
  int traffic_class;
};
struct CommAttributes {
  int32_t max_concurrent_peers, min_concurrent_peers, max_flows_per_peer, min_flows_per_peer;
};
struct NetAttributes {  // v11 on
  CommAttributes send_comm_attr, recv_comm_attr;
  uint32_t op, algo, proto;
};
using Profiler = Result (*)(void** event, int type, void* parent, int64_t plugin, void* data);

template <int kAbi>
struct NetTable {
  template <typename First, typename... Later>
  using Call = Member<kAbi, First, Later...>;
  using RegisteredSize = std::conditional_t<(kAbi < 8), int, size_t>;
  using Size = std::conditional_t<(kAbi < 9), int, size_t>;

  const char* name;
  Call<From<5, Result(Logger)>, From<10, Result(Logger, Profiler)>,
       From<11, Result(void**, uint64_t, NetConfig*, Logger, Profiler)>>
      init;
  Result (*devices)(int*);
  Result (*get_properties)(int, Props<kAbi>*);
  Call<From<5, Result(int, void*, void**)>, From<11, Result(void*, int, void*, void**)>> listen;
  Call<From<5, Result(int, void*, void**)>, From<7, Result(int, void*, void**, void**)>,
       From<10, Result(int, NetConfig*, void*, void**, void**)>,
       From<11, Result(void*, int, void*, void**, void**)>>
      connect;
  Call<From<5, Result(void*, void**)>, From<7, Result(void*, void**, void**)>> accept;
  Result (*reg_mr)(void*, void*, RegisteredSize, int, void**);
  [[no_unique_address]] Call<From<6, Result(void*, void*, size_t, int, uint64_t, int, void**)>>
      reg_mr_dma_buf;
  Result (*dereg_mr)(void*, void*);
  Call<From<5, Result(void*, void*, Size, int, void*, void**)>,
       From<10, Result(void*, void*, Size, int, void*, void*, void**)>>
      isend;
  Call<From<5, Result(void*, int, void**, Size*, int*, void**, void**)>,
       From<10, Result(void*, int, void**, Size*, int*, void**, void**, void**)>>
      irecv;
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
  [[no_unique_address]] Call<From<7, Result(void*, void*, void**)>> get_device_mr;
  [[no_unique_address]] Call<From<7, Result(void*, int, void*)>> irecv_consumed;
  [[no_unique_address]] Call<From<9, Result(int*, typename Props<kAbi>::Virtual*)>> make_vdevice;
  [[no_unique_address]] Call<From<11, Result(void*)>> finalize;
  [[no_unique_address]] Call<From<11, Result(void*, NetAttributes*)>> set_net_attr;
};

}  // namespace player
