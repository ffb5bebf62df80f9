#include "transport/rdma/verbs.h"

#include <dlfcn.h>

#include <string>

namespace sluice::transport::rdma {
namespace {

struct Loaded {
  Verbs verbs{};
  std::string missing;  // empty: all is there
};

template <typename Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr && missing.empty()) missing = std::string("libibverbs has no ") + name;
  function = reinterpret_cast<Function>(symbol);
}

Loaded load() {
  Loaded l;
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    l.missing = why != nullptr ? why : "libibverbs.so.1 is not there";
    return l;
  }
  Verbs& v = l.verbs;
  // Before all other calls: children of a process that forks must not share the rings that a device reads.
  // Kernels of 5.12 and later see to that by themselves.
  decltype(&ibv_fork_init) fork_init = nullptr;
  find(library, "ibv_fork_init", fork_init, l.missing);
  if (fork_init != nullptr) (void)fork_init();
  find(library, "ibv_get_device_list", v.get_device_list, l.missing);
  find(library, "ibv_free_device_list", v.free_device_list, l.missing);
  find(library, "ibv_get_device_name", v.get_device_name, l.missing);
  find(library, "ibv_open_device", v.open_device, l.missing);
  find(library, "ibv_close_device", v.close_device, l.missing);
  find(library, "_ibv_query_gid_table", v.query_gid_table, l.missing);
  find(library, "ibv_query_port", v.query_port, l.missing);
  find(library, "ibv_get_async_event", v.get_async_event, l.missing);
  find(library, "ibv_ack_async_event", v.ack_async_event, l.missing);
  find(library, "ibv_alloc_pd", v.alloc_pd, l.missing);
  find(library, "ibv_dealloc_pd", v.dealloc_pd, l.missing);
  find(library, "ibv_reg_mr", v.reg_mr, l.missing);
  std::string may_be_missing;
  find(library, "ibv_reg_dmabuf_mr", v.reg_dmabuf_mr, may_be_missing);
  find(library, "ibv_dereg_mr", v.dereg_mr, l.missing);
  find(library, "ibv_create_comp_channel", v.create_comp_channel, l.missing);
  find(library, "ibv_destroy_comp_channel", v.destroy_comp_channel, l.missing);
  find(library, "ibv_create_cq", v.create_cq, l.missing);
  find(library, "ibv_destroy_cq", v.destroy_cq, l.missing);
  find(library, "ibv_get_cq_event", v.get_cq_event, l.missing);
  find(library, "ibv_ack_cq_events", v.ack_cq_events, l.missing);
  find(library, "ibv_create_qp", v.create_qp, l.missing);
  find(library, "ibv_modify_qp", v.modify_qp, l.missing);
  find(library, "ibv_destroy_qp", v.destroy_qp, l.missing);
  return l;
}

}  // namespace

Result<const Verbs*> verbs() {
  static const Loaded loaded = load();
  if (!loaded.missing.empty()) return fail(Errc::kUnsupported, "no RDMA: " + loaded.missing);
  return &loaded.verbs;
}

}  // namespace sluice::transport::rdma
