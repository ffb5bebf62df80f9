// The tables that a plugin exports for collectives, per version. layout_checks.cc compares them with
// ../abi/layouts.tsv.
#pragma once

#include "tests/nccl/player/net_tables.h"

namespace player {

template <typename Size>
struct ScatterGather {
  void* mhandle;
  void* address;
  Size size;
};

struct CollNetV8 {
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV8*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(void**, int, int, void*, void**);
  Result (*reduce_support)(DataType, ReduceOp, int*);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*iallreduce)(void*, void*, void*, int, DataType, ReduceOp, void*, void*, void**);
  Result (*iallgather)(void*, void*, int, ScatterGather<uint32_t>*, size_t, size_t, size_t, void*, void**);
  Result (*ireducescatter)(void*, int, ScatterGather<uint32_t>*, void*, size_t, size_t, size_t, DataType,
                           ReduceOp, void*, void**);
  Result (*iflush)(void*, void*, int, void*, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_coll)(void*);
  Result (*close_listen)(void*);
};
struct CollNetV9 {  // v10 too
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV9*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(void**, int, int, void*, void**);
  Result (*reduce_support)(DataType, ReduceOp, int*);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*iallreduce)(void*, void*, void*, size_t, DataType, ReduceOp, void*, void*, void**);
  Result (*iallgather)(void*, void*, int, ScatterGather<size_t>*, size_t, size_t, size_t, void*, void**);
  Result (*ireducescatter)(void*, int, ScatterGather<size_t>*, void*, size_t, size_t, size_t, DataType,
                           ReduceOp, void*, void**);
  Result (*iflush)(void*, void*, int, void*, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_coll)(void*);
  Result (*close_listen)(void*);
  Result (*make_vdevice)(int*, VirtualDevice<4>*);
};
template <typename Props, int kVirtualDevices>
struct CollNetV11 {
  const char* name;
  Result (*init)(void**, uint64_t, Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, Props*);
  Result (*listen)(void*, int, void*, void**);
  Result (*connect)(void**, int, int, void*, void**);
  Result (*reduce_support)(DataType, ReduceOp, int*);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*iallreduce)(void*, void*, void*, size_t, DataType, ReduceOp, void*, void*, void**);
  Result (*iallgather)(void*, void*, int, ScatterGather<size_t>*, size_t, size_t, size_t, void*, void**);
  Result (*ireducescatter)(void*, int, ScatterGather<size_t>*, void*, size_t, size_t, size_t, DataType,
                           ReduceOp, void*, void**);
  Result (*iflush)(void*, void*, int, void*, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_coll)(void*);
  Result (*close_listen)(void*);
  Result (*make_vdevice)(int*, VirtualDevice<kVirtualDevices>*);
  Result (*finalize)(void*);
};

template <int kAbi>
struct CollNetTable;
template <>
struct CollNetTable<8> {
  using Type = CollNetV8;
};
template <>
struct CollNetTable<9> {
  using Type = CollNetV9;
};
template <>
struct CollNetTable<10> {
  using Type = CollNetV9;
};
template <>
struct CollNetTable<11> {
  using Type = CollNetV11<PropsV11, 4>;
};
template <>
struct CollNetTable<12> {
  using Type = CollNetV11<PropsV12, 8>;
};

}  // namespace player
