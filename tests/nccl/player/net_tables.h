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

struct NetV5 {
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV5*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**);
  Result (*accept)(void*, void**);
  Result (*reg_mr)(void*, void*, int, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, int, int, void*, void**);
  Result (*irecv)(void*, int, void**, int*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
};
struct NetV6 {
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV5*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**);
  Result (*accept)(void*, void**);
  Result (*reg_mr)(void*, void*, int, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, int, int, void*, void**);
  Result (*irecv)(void*, int, void**, int*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
};
// v7 and v8 differ in the properties and in the width of regMr's size.
template <typename Props, typename RegisterSize>
struct NetV7 {
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, Props*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**, void**);
  Result (*accept)(void*, void**, void**);
  Result (*reg_mr)(void*, void*, RegisterSize, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, int, int, void*, void**);
  Result (*irecv)(void*, int, void**, int*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
  Result (*get_device_mr)(void*, void*, void**);
  Result (*irecv_consumed)(void*, int, void*);
};
struct NetV9 {
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV9*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**, void**);
  Result (*accept)(void*, void**, void**);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, size_t, int, void*, void**);
  Result (*irecv)(void*, int, void**, size_t*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
  Result (*get_device_mr)(void*, void*, void**);
  Result (*irecv_consumed)(void*, int, void*);
  Result (*make_vdevice)(int*, VirtualDevice<4>*);
};
struct NetV10 {
  const char* name;
  Result (*init)(Logger, Profiler);
  Result (*devices)(int*);
  Result (*get_properties)(int, PropsV9*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, NetConfig*, void*, void**, void**);
  Result (*accept)(void*, void**, void**);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, size_t, int, void*, void*, void**);
  Result (*irecv)(void*, int, void**, size_t*, int*, void**, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
  Result (*get_device_mr)(void*, void*, void**);
  Result (*irecv_consumed)(void*, int, void*);
  Result (*make_vdevice)(int*, VirtualDevice<4>*);
};
template <typename Props, int kVirtualDevices>
struct NetV11 {
  const char* name;
  Result (*init)(void**, uint64_t, NetConfig*, Logger, Profiler);
  Result (*devices)(int*);
  Result (*get_properties)(int, Props*);
  Result (*listen)(void*, int, void*, void**);
  Result (*connect)(void*, int, void*, void**, void**);
  Result (*accept)(void*, void**, void**);
  Result (*reg_mr)(void*, void*, size_t, int, void**);
  Result (*reg_mr_dma_buf)(void*, void*, size_t, int, uint64_t, int, void**);
  Result (*dereg_mr)(void*, void*);
  Result (*isend)(void*, void*, size_t, int, void*, void*, void**);
  Result (*irecv)(void*, int, void**, size_t*, int*, void**, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*close_send)(void*);
  Result (*close_recv)(void*);
  Result (*close_listen)(void*);
  Result (*get_device_mr)(void*, void*, void**);
  Result (*irecv_consumed)(void*, int, void*);
  Result (*make_vdevice)(int*, VirtualDevice<kVirtualDevices>*);
  Result (*finalize)(void*);
  Result (*set_net_attr)(void*, NetAttributes*);
};

template <int kAbi>
struct NetTable;
template <>
struct NetTable<5> {
  using Type = NetV5;
  using Props = PropsV5;
};
template <>
struct NetTable<6> {
  using Type = NetV6;
  using Props = PropsV5;
};
template <>
struct NetTable<7> {
  using Type = NetV7<PropsV7, int>;
  using Props = PropsV7;
};
template <>
struct NetTable<8> {
  using Type = NetV7<PropsV8, size_t>;
  using Props = PropsV8;
};
template <>
struct NetTable<9> {
  using Type = NetV9;
  using Props = PropsV9;
};
template <>
struct NetTable<10> {
  using Type = NetV10;
  using Props = PropsV9;
};
template <>
struct NetTable<11> {
  using Type = NetV11<PropsV11, 4>;
  using Props = PropsV11;
};
template <>
struct NetTable<12> {
  using Type = NetV11<PropsV12, 8>;
  using Props = PropsV12;
};

}  // namespace player
