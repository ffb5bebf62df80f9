// The functions of libibverbs, loaded at run time, so that a machine without the library works without RDMA.
// Functions that verbs.h defines inline (posting, polling) call the driver directly.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "core/result.h"

namespace sluice::transport::rdma {

struct Verbs {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  decltype(&_ibv_query_gid_table) query_gid_table;
  decltype(&ibv_query_port) query_port;
  decltype(&ibv_get_async_event) get_async_event;
  decltype(&ibv_ack_async_event) ack_async_event;
  decltype(&ibv_alloc_pd) alloc_pd;
  decltype(&ibv_dealloc_pd) dealloc_pd;
  decltype(&ibv_reg_mr) reg_mr;
  // Null in libraries older than rdma-core 34. The header may be older too, so the type is written out.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, uint64_t offset, size_t length, uint64_t address, int descriptor,
                           int access);
  decltype(&ibv_dereg_mr) dereg_mr;
  decltype(&ibv_create_comp_channel) create_comp_channel;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&ibv_create_cq) create_cq;
  decltype(&ibv_destroy_cq) destroy_cq;
  decltype(&ibv_get_cq_event) get_cq_event;
  decltype(&ibv_ack_cq_events) ack_cq_events;
  decltype(&ibv_create_qp) create_qp;
  decltype(&ibv_modify_qp) modify_qp;
  decltype(&ibv_destroy_qp) destroy_qp;
};

// Loads libibverbs once and never unloads it. kUnsupported: it or a function is missing. Any thread.
[[nodiscard]] Result<const Verbs*> load_verbs();

// DeviceList owns the list of RDMA devices that libibverbs returns.
struct DeviceList {
  explicit DeviceList(const Verbs& v) : verbs(v), devices(v.get_device_list(&count)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) verbs.free_device_list(devices);
  }
  const Verbs& verbs;
  int count = 0;
  ibv_device** devices;
};

}  // namespace sluice::transport::rdma
