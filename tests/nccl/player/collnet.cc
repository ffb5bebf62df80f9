#include "tests/nccl/player/collnet.h"

#include "tests/nccl/player/collnet_tables.h"
#include "tests/nccl/player/device_facts.h"
#include "tests/nccl/player/failure.h"

namespace player {
namespace {

template <int kAbi>
class CollNetAdapter : public CollNet {
 public:
  using Table = typename CollNetTable<kAbi>::Type;

  explicit CollNetAdapter(Table* table) : table_(table) {
    const bool complete = table->name && table->init && table->devices && table->get_properties &&
                          table->listen && table->connect && table->reduce_support && table->reg_mr &&
                          table->dereg_mr && table->iallreduce && table->iflush && table->test &&
                          table->close_coll && table->close_listen;
    require(complete, "CollNet table: a required function is missing");
    if constexpr (kAbi >= 11) require(table->finalize != nullptr, "CollNet table: finalize is missing");
    // NCCL uses these functions if they are present.
    require(table->iallgather == nullptr && table->ireducescatter == nullptr,
            "CollNet table: has collectives that the player does not test");
  }

  std::string name() const override { return table_->name; }
  Result init(uint64_t comm_id, void** context) override {
    if constexpr (kAbi >= 11) {
      return table_->init(context, comm_id, log_from_plugin);
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
  Result connect(void** handles, int ranks, int rank, void* listener, void** comm) override {
    return table_->connect(handles, ranks, rank, listener, comm);
  }
  Result reduce_support(int type, int op, int* supported) override {
    return table_->reduce_support(static_cast<DataType>(type), static_cast<ReduceOp>(op), supported);
  }
  Result reg_mr(void* comm, void* data, size_t bytes, void** mhandle) override {
    return table_->reg_mr(comm, data, bytes, kPointerHost, mhandle);
  }
  Result dereg_mr(void* comm, void* mhandle) override { return table_->dereg_mr(comm, mhandle); }
  Result iallreduce(void* comm, void* send, void* receive, size_t count, DataType type, ReduceOp op,
                    void* send_mhandle, void* receive_mhandle, void** request) override {
    if constexpr (kAbi == 8) {
      return table_->iallreduce(comm, send, receive, static_cast<int>(count), type, op, send_mhandle,
                                receive_mhandle, request);
    } else {
      return table_->iallreduce(comm, send, receive, count, type, op, send_mhandle, receive_mhandle, request);
    }
  }
  Result test(void* request, int* done, int* bytes) override { return table_->test(request, done, bytes); }
  Result close_coll(void* comm) override { return table_->close_coll(comm); }
  Result close_listen(void* listener) override { return table_->close_listen(listener); }
  Result finalize(void* context) override {
    if constexpr (kAbi >= 11) {
      return table_->finalize(context);
    } else {
      return kSuccess;
    }
  }

 private:
  Table* const table_;
};

template <int kAbi>
std::unique_ptr<CollNet> load(const Library& library) {
  return std::make_unique<CollNetAdapter<kAbi>>(
      static_cast<typename CollNetTable<kAbi>::Type*>(library.table("ncclCollNetPlugin", kAbi)));
}

}  // namespace

std::unique_ptr<CollNet> load_collnet(const Library& library, int abi) {
  switch (abi) {
    case 8: return load<8>(library);
    case 9: return load<9>(library);
    case 10: return load<10>(library);
    case 11: return load<11>(library);
    case 12: return load<12>(library);
    default: throw Failure("no CollNet ABI version " + std::to_string(abi));
  }
}

}  // namespace player
