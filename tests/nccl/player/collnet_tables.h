// The tables that a plugin exports for collectives, per version. layout_checks.cc compares them with
// ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/net_props.h"

namespace player {

template <int kAbi>
struct ScatterGather {
  void* mhandle;
  void* address;
  std::conditional_t<(kAbi < 9), uint32_t, size_t> size;
};

template <int kAbi>
struct CollNetTable {
  template <typename First, typename... Later>
  using Call = Member<kAbi, First, Later...>;
  using Count = std::conditional_t<(kAbi < 9), int, size_t>;
  using Parts = ScatterGather<kAbi>*;

  const char* name;
  Call<From<8, Result(Logger)>, From<11, Result(void**, uint64_t, Logger)>> init;
  Result (*devices)(int*);
  Result (*get_properties)(int, Props<kAbi>*);
  Call<From<8, Result(int, void*, void**)>, From<11, Result(void*, int, void*, void**)>> listen;
  Result (*connect)(void**, int, int, void*, void**);
  Result (*reduce_support)(DataType, ReduceOp, int*);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*iallreduce)(void*, void*, void*, Count, DataType, ReduceOp, void*, void*, void**);
  Result (*iallgather)(void*, void*, int, Parts, size_t, size_t, size_t, void*, void**);
  Result (*ireducescatter)(void*, int, Parts, void*, size_t, size_t, size_t, DataType, ReduceOp, void*,
                           void**);
  Result (*iflush)(void*, void*, int, void*, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_coll)(void*);
  Result (*close_listen)(void*);
  [[no_unique_address]] Call<From<9, Result(int*, typename Props<kAbi>::Virtual*)>> make_vdevice;
  [[no_unique_address]] Call<From<11, Result(void*)>> finalize;
};

}  // namespace player
