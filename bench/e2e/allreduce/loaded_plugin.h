// Class LoadedPlugin loads the NCCL plugin like NCCL does and provides access to the tables that it exports.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::bench {

// The layout of ncclCollNet_v8; the order of the members is part of NCCL's ABI.
struct CollNetTable {
  using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                          ...);
  const char* name;
  int (*init)(Logger log);
  int (*devices)(int* count);
  int (*get_properties)(int device, void* properties);
  int (*listen)(int device, void* handle, void** listener);
  int (*connect)(void* handles[], int ranks, int rank, void* listener, void** comm);
  int (*reduce_support)(int data_type, int op, int* supported);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** handle);
  void* reg_mr_dma_buf;
  int (*dereg_mr)(void* comm, void* handle);
  int (*iallreduce)(void* comm, void* send, void* receive, int count, int data_type, int op,
                    void* send_handle, void* receive_handle, void** request);
  void* iallgather;
  void* ireducescatter;
  void* iflush;
  int (*test)(void* request, int* done, int* size);
  int (*close_coll)(void* comm);
  int (*close_listen)(void* listener);
};

class LoadedPlugin {
 public:
  // `path` empty: the library next to this program, otherwise in the search path of the dynamic linker.
  // Throws Failure(kExitConfig) when the library cannot be loaded or is not an NCCL plugin.
  explicit LoadedPlugin(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Returns the ABI versions, for example "net v5-v12, collnet v8-v12, tuner v2-v7".
  [[nodiscard]] std::string versions() const;
  [[nodiscard]] const CollNetTable& collnet() const noexcept { return *collnet_; }

 private:
  [[nodiscard]] std::vector<int> versions_of(const char* symbol) const;

  std::string path_;
  void* library_ = nullptr;  // never closed, because threads of the plugin outlive a dlclose()
  const CollNetTable* collnet_ = nullptr;
};

}  // namespace sluice::bench
