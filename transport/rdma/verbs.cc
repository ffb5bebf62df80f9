#include "transport/rdma/verbs.h"

#include <dlfcn.h>

#include <string>

namespace sluice::transport::rdma {
namespace {

struct LoadedLibrary {
  Verbs verbs{};
  std::string error;  // empty: complete
};

template <typename Function>
void find_symbol(void* library, const char* name, Function& function, std::string& error) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr && error.empty())
    error = std::string("libibverbs.so.1 has no ") + name + "; install a newer rdma-core";
  function = reinterpret_cast<Function>(symbol);
}

LoadedLibrary load_library() {
  LoadedLibrary l;
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = ::dlerror();
    l.error = error != nullptr ? error : "cannot load libibverbs.so.1";
    return l;
  }
  Verbs& v = l.verbs;
  // Before all other calls: forked children must not share the rings of a device (kernels before 5.12).
  decltype(&ibv_fork_init) fork_init = nullptr;
  find_symbol(library, "ibv_fork_init", fork_init, l.error);
  if (fork_init != nullptr) (void)fork_init();
  find_symbol(library, "ibv_get_device_list", v.get_device_list, l.error);
  find_symbol(library, "ibv_free_device_list", v.free_device_list, l.error);
  find_symbol(library, "ibv_get_device_name", v.get_device_name, l.error);
  find_symbol(library, "ibv_open_device", v.open_device, l.error);
  find_symbol(library, "ibv_close_device", v.close_device, l.error);
  find_symbol(library, "_ibv_query_gid_table", v.query_gid_table, l.error);
  find_symbol(library, "ibv_query_port", v.query_port, l.error);
  find_symbol(library, "ibv_get_async_event", v.get_async_event, l.error);
  find_symbol(library, "ibv_ack_async_event", v.ack_async_event, l.error);
  find_symbol(library, "ibv_alloc_pd", v.alloc_pd, l.error);
  find_symbol(library, "ibv_dealloc_pd", v.dealloc_pd, l.error);
  find_symbol(library, "ibv_reg_mr", v.reg_mr, l.error);
  std::string ignored;  // this function is optional
  find_symbol(library, "ibv_reg_dmabuf_mr", v.reg_dmabuf_mr, ignored);
  find_symbol(library, "ibv_dereg_mr", v.dereg_mr, l.error);
  find_symbol(library, "ibv_create_comp_channel", v.create_comp_channel, l.error);
  find_symbol(library, "ibv_destroy_comp_channel", v.destroy_comp_channel, l.error);
  find_symbol(library, "ibv_create_cq", v.create_cq, l.error);
  find_symbol(library, "ibv_destroy_cq", v.destroy_cq, l.error);
  find_symbol(library, "ibv_get_cq_event", v.get_cq_event, l.error);
  find_symbol(library, "ibv_ack_cq_events", v.ack_cq_events, l.error);
  find_symbol(library, "ibv_create_qp", v.create_qp, l.error);
  find_symbol(library, "ibv_modify_qp", v.modify_qp, l.error);
  find_symbol(library, "ibv_destroy_qp", v.destroy_qp, l.error);
  return l;
}

}  // namespace

Result<const Verbs*> load_verbs() {
  static const LoadedLibrary loaded = load_library();
  if (!loaded.error.empty()) return fail(Errc::kUnsupported, "no RDMA support: " + loaded.error);
  return &loaded.verbs;
}

}  // namespace sluice::transport::rdma
