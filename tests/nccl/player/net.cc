#include "tests/nccl/player/net.h"

#include "tests/nccl/player/net_tables.h"
#include "tests/nccl/player/table_adapter.h"

namespace player {
namespace {

template <int kAbi>
class NetAdapter : public TableAdapter<Net, NetTable<kAbi>, kAbi> {
 public:
  using typename TableAdapter<Net, NetTable<kAbi>, kAbi>::Table;

  explicit NetAdapter(Table* table)
      : TableAdapter<Net, Table, kAbi>(
            table, "net",
            table->accept && table->isend && table->irecv && table->close_send && table->close_recv) {}

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
    const auto size = static_cast<typename Table::RegisteredSize>(bytes);
    return table_->reg_mr(comm, data, size, kPointerHost, mhandle);
  }
  Result isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    const auto size = static_cast<typename Table::Size>(bytes);
    if constexpr (kAbi >= 10) {
      return table_->isend(comm, data, size, tag, mhandle, nullptr, request);
    } else {
      return table_->isend(comm, data, size, tag, mhandle, request);
    }
  }
  Result irecv(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    auto size = static_cast<typename Table::Size>(bytes);
    if constexpr (kAbi >= 10) {
      void* profile_handle = nullptr;
      return table_->irecv(comm, 1, &data, &size, &tag, &mhandle, &profile_handle, request);
    } else {
      return table_->irecv(comm, 1, &data, &size, &tag, &mhandle, request);
    }
  }
  Result close_send(void* comm) override { return table_->close_send(comm); }
  Result close_recv(void* comm) override { return table_->close_recv(comm); }
  bool init_per_communicator() const override { return kAbi >= 11; }

 private:
  static Result profile(void**, int, void*, int64_t, void*) { return kSuccess; }

  using TableAdapter<Net, Table, kAbi>::table_;
};

}  // namespace

std::unique_ptr<Net> load_net(const Library& library, int abi) {
  return load_adapter<Net, NetAdapter, kFirstNetAbi, kLastNetAbi>(library, "ncclNetPlugin", abi);
}

}  // namespace player
