#include "tests/nccl/player/net.h"

#include "tests/nccl/player/device_facts.h"
#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/net_tables.h"

namespace player {
namespace {

template <int kAbi>
class NetAdapter : public Net {
 public:
  using Table = typename NetTable<kAbi>::Type;

  explicit NetAdapter(Table* table) : table_(table) {
    const bool complete = table->name && table->init && table->devices && table->get_properties &&
                          table->listen && table->connect && table->accept && table->reg_mr &&
                          table->dereg_mr && table->isend && table->irecv && table->iflush && table->test &&
                          table->close_send && table->close_recv && table->close_listen;
    require(complete, "net table: a required function is missing");
    if constexpr (kAbi >= 11) require(table->finalize != nullptr, "net table: finalize is missing");
  }

  std::string name() const override { return table_->name; }
  Result init(uint64_t comm_id, void** context) override {
    if constexpr (kAbi >= 11) {
      NetConfig config{-1};
      return table_->init(context, comm_id, &config, log_from_plugin, profile);
    } else if constexpr (kAbi == 10) {
      return table_->init(log_from_plugin, profile);
    } else {
      return table_->init(log_from_plugin);
    }
  }
  Result devices(int* count) override { return table_->devices(count); }
  Result properties(int device, DeviceFacts* facts) override {
    return read_properties<typename NetTable<kAbi>::Props>(
        [&](auto* props) { return table_->get_properties(device, props); }, facts);
  }
  Result listen(void* context, int device, void* handle, void** listener) override {
    if constexpr (kAbi >= 11) {
      return table_->listen(context, device, handle, listener);
    } else {
      return table_->listen(device, handle, listener);
    }
  }
  Result connect(void* context, int device, void* handle, void** comm) override {
    void* device_comm = nullptr;
    if constexpr (kAbi >= 11) {
      return table_->connect(context, device, handle, comm, &device_comm);
    } else if constexpr (kAbi == 10) {
      NetConfig config{-1};
      return table_->connect(device, &config, handle, comm, &device_comm);
    } else if constexpr (kAbi >= 7) {
      return table_->connect(device, handle, comm, &device_comm);
    } else {
      return table_->connect(device, handle, comm);
    }
  }
  Result accept(void* listener, void** comm) override {
    if constexpr (kAbi >= 7) {
      void* device_comm = nullptr;
      return table_->accept(listener, comm, &device_comm);
    } else {
      return table_->accept(listener, comm);
    }
  }
  Result reg_mr(void* comm, void* data, size_t bytes, void** mhandle) override {
    if constexpr (kAbi >= 8) {
      return table_->reg_mr(comm, data, bytes, kPointerHost, mhandle);
    } else {
      return table_->reg_mr(comm, data, static_cast<int>(bytes), kPointerHost, mhandle);
    }
  }
  Result dereg_mr(void* comm, void* mhandle) override { return table_->dereg_mr(comm, mhandle); }
  Result isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    if constexpr (kAbi >= 10) {
      return table_->isend(comm, data, bytes, tag, mhandle, nullptr, request);
    } else if constexpr (kAbi == 9) {
      return table_->isend(comm, data, bytes, tag, mhandle, request);
    } else {
      return table_->isend(comm, data, static_cast<int>(bytes), tag, mhandle, request);
    }
  }
  Result irecv(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    if constexpr (kAbi >= 9) {
      size_t size = bytes;
      if constexpr (kAbi >= 10) {
        void* profile_handle = nullptr;
        return table_->irecv(comm, 1, &data, &size, &tag, &mhandle, &profile_handle, request);
      } else {
        return table_->irecv(comm, 1, &data, &size, &tag, &mhandle, request);
      }
    } else {
      int size = static_cast<int>(bytes);
      return table_->irecv(comm, 1, &data, &size, &tag, &mhandle, request);
    }
  }
  Result test(void* request, int* done, int* bytes) override { return table_->test(request, done, bytes); }
  Result close_send(void* comm) override { return table_->close_send(comm); }
  Result close_recv(void* comm) override { return table_->close_recv(comm); }
  Result close_listen(void* listener) override { return table_->close_listen(listener); }
  Result finalize(void* context) override {
    if constexpr (kAbi >= 11) {
      return table_->finalize(context);
    } else {
      return kSuccess;
    }
  }
  bool init_per_communicator() const override { return kAbi >= 11; }

 private:
  static Result profile(void**, int, void*, int64_t, void*) { return kSuccess; }

  Table* const table_;
};

template <int kAbi>
std::unique_ptr<Net> load(const Library& library) {
  return std::make_unique<NetAdapter<kAbi>>(
      static_cast<typename NetTable<kAbi>::Type*>(library.table("ncclNetPlugin", kAbi)));
}

}  // namespace

std::unique_ptr<Net> load_net(const Library& library, int abi) {
  switch (abi) {
    case 5: return load<5>(library);
    case 6: return load<6>(library);
    case 7: return load<7>(library);
    case 8: return load<8>(library);
    case 9: return load<9>(library);
    case 10: return load<10>(library);
    case 11: return load<11>(library);
    case 12: return load<12>(library);
    default: throw Failure("no net ABI version " + std::to_string(abi));
  }
}

}  // namespace player
