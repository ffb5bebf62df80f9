#include "tests/nccl/player/collnet.h"

#include "tests/nccl/player/collnet_tables.h"
#include "tests/nccl/player/table_adapter.h"

namespace player {
namespace {

template <int kAbi>
class CollNetAdapter : public TableAdapter<CollNet, CollNetTable<kAbi>, kAbi> {
 public:
  using typename TableAdapter<CollNet, CollNetTable<kAbi>, kAbi>::Table;

  explicit CollNetAdapter(Table* table)
      : TableAdapter<CollNet, Table, kAbi>(table, "CollNet",
                                           table->reduce_support && table->iallreduce && table->close_coll) {
    // NCCL uses these functions if they are present.
    require(table->iallgather == nullptr && table->ireducescatter == nullptr,
            "CollNet table: has collectives that the player does not test");
  }

  Result init(uint64_t comm_id, void** context) override {
    if constexpr (kAbi >= 11) {
      return table_->init(context, comm_id, log_from_plugin);
    } else {
      return table_->init(log_from_plugin);
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
  Result iallreduce(void* comm, void* send, void* receive, size_t count, DataType type, ReduceOp op,
                    void* send_mhandle, void* receive_mhandle, void** request) override {
    return table_->iallreduce(comm, send, receive, static_cast<typename Table::Count>(count), type, op,
                              send_mhandle, receive_mhandle, request);
  }
  Result close_coll(void* comm) override { return table_->close_coll(comm); }

 private:
  using TableAdapter<CollNet, Table, kAbi>::table_;
};

}  // namespace

std::unique_ptr<CollNet> load_collnet(const Library& library, int abi) {
  return load_adapter<CollNet, CollNetAdapter, kFirstCollNetAbi, kLastCollNetAbi>(library,
                                                                                  "ncclCollNetPlugin", abi);
}

}  // namespace player
