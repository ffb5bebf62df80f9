#include "tests/nccl/player/tuner.h"

#include "tests/nccl/player/table_adapter.h"
#include "tests/nccl/player/tuner_tables.h"

namespace player {
namespace {

template <int kAbi>
class TunerAdapter : public Tuner {
 public:
  using Table = TunerTable<kAbi>;

  explicit TunerAdapter(Table* table) : table_(table) {
    require(table->name && table->init && table->get_coll_info,
            "tuner table: a required function is missing");
  }

  Result init(uint64_t comm_id, size_t ranks, size_t nodes, void** context) override {
    if constexpr (kAbi >= 5) {
      NvlDomain domain{static_cast<int>(nodes), static_cast<int>(ranks / nodes),
                       static_cast<int>(ranks / nodes)};
      const TunerConstants<kAbi> original{};
      TunerConstants<kAbi> constants = original;
      const Result result =
          table_->init(context, comm_id, ranks, nodes, log_from_plugin, &domain, &constants);
      for (size_t at = 0; at < sizeof(original) / sizeof(double); ++at) {
        require(reinterpret_cast<const double*>(&constants)[at] == 0, "the tuner changed NCCL's constants");
      }
      return result;
    } else {
      return table_->init(ranks, nodes, log_from_plugin, context);
    }
  }
  Result tune(void* context, Function function, size_t bytes, CostTable& costs, int* channels) override {
    if constexpr (kAbi == 2) {
      throw Failure("tuner v2 has no cost table");
    } else {
      // The declared type is float**, but NCCL passes the contiguous table itself.
      auto** const table = reinterpret_cast<float**>(&costs);
      if constexpr (kAbi == 3) {
        return table_->get_coll_info(context, function, bytes, 1, table, kAlgorithms, kProtocols, channels);
      } else {
        return table_->get_coll_info(context, function, bytes, 1, table, kAlgorithms, kProtocols, 0,
                                     channels);
      }
    }
  }
  Result choose(void* context, Function function, size_t bytes, bool collnet, int* algorithm, int* protocol,
                int* channels) override {
    if constexpr (kAbi == 2) {
      return table_->get_coll_info(context, function, bytes, collnet ? 1 : 0, 0, 1, algorithm, protocol,
                                   channels);
    } else {
      throw Failure("tuner v3 and newer have a cost table");
    }
  }
  bool is_choice() const override { return kAbi == 2; }
  Result chunk_size(void* context, Function function, size_t bytes, int algorithm, int protocol, int channels,
                    size_t* chunk) override {
    if constexpr (kAbi >= 6) {
      if (table_->get_chunk_size == nullptr) return kSuccess;
      return table_->get_chunk_size(context, function, bytes, algorithm, protocol, channels, chunk);
    } else {
      return kSuccess;
    }
  }
  Result end(void* context) override { return table_->finalize(context); }

 private:
  Table* const table_;
};

}  // namespace

std::unique_ptr<Tuner> load_tuner(const Library& library, int abi) {
  return load_adapter<Tuner, TunerAdapter, kFirstTunerAbi, kLastTunerAbi>(library, "ncclTunerPlugin", abi);
}

}  // namespace player
