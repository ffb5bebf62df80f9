#include "tests/nccl/player/tuner.h"

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/tuner_tables.h"

namespace player {
namespace {

template <typename Table, int kAbi>
class TunerAdapter : public Tuner {
 public:
  explicit TunerAdapter(Table* table) : table_(table) {
    require(table->name && table->init && table->get_coll_info,
            "tuner table: a required function is missing");
  }

  Result init(uint64_t comm_id, size_t ranks, size_t nodes, void** context) override {
    if constexpr (kAbi >= 5) {
      NvlDomain domain{static_cast<int>(nodes), static_cast<int>(ranks / nodes),
                       static_cast<int>(ranks / nodes)};
      const TunerConstants original{};
      TunerConstants constants = original;
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
  Result end(void* context) override {
    if constexpr (kAbi >= 5) {
      return table_->finalize(context);
    } else {
      return table_->destroy(context);
    }
  }

 private:
  Table* const table_;
};

template <typename Table, int kAbi>
std::unique_ptr<Tuner> load(const Library& library) {
  return std::make_unique<TunerAdapter<Table, kAbi>>(
      static_cast<Table*>(library.table("ncclTunerPlugin", kAbi)));
}

}  // namespace

std::unique_ptr<Tuner> load_tuner(const Library& library, int abi) {
  switch (abi) {
    case 2: return load<TunerV2, 2>(library);
    case 3: return load<TunerV3, 3>(library);
    case 4: return load<TunerV4, 4>(library);
    case 5: return load<TunerV5, 5>(library);
    case 6: return load<TunerV6, 6>(library);
    default: throw Failure("no tuner ABI version " + std::to_string(abi));
  }
}

}  // namespace player
