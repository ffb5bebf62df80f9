#include "tests/nccl/player/profiler.h"

#include <unistd.h>

#include "tests/nccl/player/profiler_tables.h"
#include "tests/nccl/player/table_adapter.h"

namespace player {
namespace {

template <int kAbi>
class ProfilerAdapter : public Profiler {
 public:
  using Table = ProfilerTable<kAbi>;

  explicit ProfilerAdapter(Table* table) : table_(table) {
    require(table->name && table->init && table->start_event && table->stop_event &&
                table->record_event_state && table->finalize,
            "profiler table: a function is missing");
  }

  Result init(const ProfiledComm& comm, void** context, int* mask) override {
    const char* const name = comm.name.empty() ? nullptr : comm.name.c_str();
    if constexpr (kAbi >= 5) {
      return table_->init(context, comm.id, mask, name, comm.nodes, comm.ranks, comm.rank, log_from_plugin);
    } else if constexpr (kAbi == 4) {
      return table_->init(context, mask, name, comm.id, comm.nodes, comm.ranks, comm.rank, log_from_plugin);
    } else {
      return table_->init(context, mask);
    }
  }

  Result start(void* context, void** handle, uint64_t type, void* parent) override {
    ProfilerEvent<kAbi> event = make(type, parent);
    return table_->start_event(context, handle, &event);
  }

  Result start_collective(void* context, void** handle, void* group, const ProfiledComm& comm,
                          const ProfiledCollective& collective) override {
    ProfilerEvent<kAbi> event = make(kProfileCollective, kAbi < 5 ? group : nullptr);
    event.rank = comm.rank;
    ProfilerCollective<kAbi>& c = event.collective;
    if constexpr (kAbi <= 3) {
      c.comm_name = comm.name.empty() ? nullptr : comm.name.c_str();
      c.comm_hash = comm.id;
    }
    c.sequence = collective.sequence;
    c.count = collective.count;
    c.channels = static_cast<uint8_t>(collective.channels);
    c.warps = 16;
    if constexpr (kAbi == 1) {
      c.function = kAllReduce;
      c.data_type = kFloat32;
      c.algorithm = kCollNetChain;
      c.protocol = kSimple;
      c.is_collnet = 1;
    } else {
      c.function = "AllReduce";
      c.data_type = "ncclFloat32";
      c.algorithm = "COLLNET_CHAIN";
      c.protocol = "SIMPLE";
    }
    if constexpr (kAbi >= 5) c.parent_group = group;
    return table_->start_event(context, handle, &event);
  }

  Result start_proxy_op(void* context, void** handle, void* parent, int channel) override {
    ProfilerEvent<kAbi> event = make(kProfileProxyOp, parent);
    event.proxy_op = {.pid = getpid(),
                      .channel = static_cast<uint8_t>(channel),
                      .peer = -1,
                      .steps = 8,
                      .chunk_bytes = 32 << 10,
                      .is_send = 0};
    return table_->start_event(context, handle, &event);
  }

  Result start_kernel(void* context, void** handle, void* parent, int channel, uint64_t gpu_time) override {
    ProfilerEvent<kAbi> event = make(kProfileKernelChannel, parent);
    event.kernel_channel.channel = static_cast<uint8_t>(channel);
    if constexpr (kAbi >= 4) event.kernel_channel.gpu_time = gpu_time;
    return table_->start_event(context, handle, &event);
  }

  Result start_nothing(void* context, void** handle) override {
    return table_->start_event(context, handle, nullptr);
  }
  Result stop(void* handle) override { return table_->stop_event(handle); }
  Result record(void* handle, int state, void* arguments) override {
    return table_->record_event_state(handle, state, arguments);
  }
  Result finalize(void* context) override { return table_->finalize(context); }

  bool has_proxy_ops() const override { return kAbi >= 4; }
  bool has_kernels() const override { return kAbi >= 3; }

 private:
  // NCCL's events are zero where nothing is set.
  static ProfilerEvent<kAbi> make(uint64_t type, void* parent) {
    ProfilerEvent<kAbi> event;
    std::memset(static_cast<void*>(&event), 0, sizeof(event));
    event.type = static_cast<decltype(event.type)>(type);
    event.parent = parent;
    return event;
  }

  Table* const table_;
};

}  // namespace

std::unique_ptr<Profiler> load_profiler(const Library& library, int abi) {
  return load_adapter<Profiler, ProfilerAdapter, kFirstProfilerAbi, kLastProfilerAbi>(library, "ncclProfiler",
                                                                                      abi);
}

}  // namespace player
