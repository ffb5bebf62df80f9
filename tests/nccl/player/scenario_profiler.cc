// Plays the profiler calls that NCCL's releases make around offloaded allreduces, from its application's
// thread and its progress thread, and the calls that no release makes.
#include <array>
#include <chrono>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/profiler.h"
#include "tests/nccl/player/profiler_tables.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

constexpr int kUnset = 0x5a5a5a5a;
constexpr int kChannels = 2;
constexpr int kFirstProfilerAbiWithEvents = 5;

uint64_t gpu_time() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// The profiler of one communicator, with the mask that it asked for.
class ProfilerSession {
 public:
  ProfilerSession(Profiler& profiler, ProfiledComm comm) : profiler_(profiler), comm_(std::move(comm)) {
    require_success(profiler_.init(comm_, &context_, &mask_), "profiler init");
    require(mask_ != kUnset, "the profiler did not set the activation mask");
  }

  [[nodiscard]] int mask() const { return mask_; }
  [[nodiscard]] void* context() { return context_; }

  // One allreduce as in NCCL: the events of the launch end before those of the network and the GPU.
  void allreduce(OpenCommunicator& open, const Operation& operation, uint64_t sequence) {
    void *group = nullptr, *collective = nullptr;
    const bool starts = (mask_ & (kProfileCollective | kProfileProxyOp | kProfileKernelChannel)) != 0;
    if (starts) {
      require_success(profiler_.start(context_, &group, kProfileGroup, nullptr), "startEvent");
      require_success(
          profiler_.start_collective(
              context_, &collective, group, comm_,
              {.sequence = sequence, .count = operation.bytes / sizeof(float), .channels = kChannels}),
          "startEvent");
    }
    open.communicator->progress().run([&] { start_network(collective); });
    if (collective != nullptr) require_success(profiler_.stop(collective), "stopEvent");
    if (group != nullptr) require_success(profiler_.stop(group), "stopEvent");
    open.traffic->run({operation});
    open.communicator->progress().run([&] { stop_kernels(); });
  }

  void finalize() {
    // NCCL does not finalize a communicator without a context.
    if (context_ != nullptr) require_success(profiler_.finalize(context_), "profiler finalize");
  }

 private:
  void start_network(void* collective) {
    for (int channel = 0; channel < kChannels; ++channel) {
      void* handle = nullptr;
      if ((mask_ & kProfileProxyOp) != 0 && profiler_.has_proxy_ops()) {
        require_success(profiler_.start_proxy_op(context_, &handle, collective, channel), "startEvent");
      }
      if ((mask_ & kProfileKernelChannel) == 0 || !profiler_.has_kernels()) continue;
      require_success(profiler_.start_kernel(context_, &kernels_[channel], collective, channel, gpu_time()),
                      "startEvent");
    }
  }
  void stop_kernels() {
    for (void*& kernel : kernels_) {
      if (kernel == nullptr) continue;
      uint64_t state = gpu_time();
      require_success(profiler_.record(kernel, kStateKernelChannelStop, &state), "recordEventState");
      require_success(profiler_.stop(kernel), "stopEvent");
      kernel = nullptr;
    }
  }

  Profiler& profiler_;
  const ProfiledComm comm_;
  void* context_ = nullptr;
  int mask_ = kUnset;
  std::array<void*, kChannels> kernels_{};
};

// No release makes these calls. They must have no effect.
void make_bad_calls(Profiler& profiler, void* context) {
  int number = 0;
  void* const unknown[] = {nullptr, &number, reinterpret_cast<void*>(uintptr_t{1}),
                           reinterpret_cast<void*>(~uintptr_t{0})};
  for (void* const handle : unknown) {
    require_success(profiler.stop(handle), "stopEvent of an unknown handle");
    for (const int state : {-1, kStateProxyOpInProgress, kStateKernelChannelStop, 1000}) {
      require_success(profiler.record(handle, state, nullptr), "recordEventState of an unknown handle");
    }
    void* started = handle;
    require_success(profiler.start_kernel(context, &started, handle, 255, 0), "startEvent of an orphan");
    require_success(profiler.stop(started), "stopEvent of an orphan");
    require_success(profiler.start_proxy_op(context, &started, handle, 255), "startEvent of an orphan");
    require_success(profiler.stop(started), "stopEvent of an orphan");
  }
  for (const uint64_t type : {0, 0xff, 1 << 14, 1 << 30}) {
    void* handle = &number;
    require_success(profiler.start(context, &handle, type, nullptr), "startEvent of an unknown type");
    require(handle == nullptr, "an event of an unknown type has a handle");
  }
  void* handle = &number;
  require_success(profiler.start_nothing(context, &handle), "startEvent without an event");
  require(handle == nullptr, "an event without a description has a handle");
  require_success(profiler.start_nothing(nullptr, nullptr), "startEvent without a handle");
  require_success(profiler.start_collective(nullptr, &handle, nullptr, {}, {}), "startEvent without context");
  require_success(profiler.stop(handle), "stopEvent");
  require_success(profiler.finalize(nullptr), "finalize without a context");
  require_success(profiler.init({}, nullptr, nullptr), "init without a context");
}

}  // namespace

// All versions of the file, one after the other, each with a communicator of its own. With --expect inert the
// profiler must ask for no event; with --expect events it must ask for collectives, where NCCL tells CollNet
// the id of the communicator.
void run_profiler(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  for (int abi = kFirstProfilerAbi; abi <= kLastProfilerAbi; ++abi) {
    const std::string name = "profiler v" + std::to_string(abi);
    rank.step(name);
    const std::unique_ptr<Profiler> profiler = load_profiler(plugin.library(), abi);
    ProfilerSession session(*profiler, {.id = hash_comm_id(name),
                                        .name = name,
                                        .nodes = rank.count(),
                                        .ranks = rank.count(),
                                        .rank = rank.index()});
    if (rank.options().expect == "inert" || abi < kFirstProfilerAbiWithEvents) {
      require(session.mask() == 0, name + " asks for events: " + std::to_string(session.mask()));
      require(session.context() == nullptr, name + " has a context, but asks for no event");
    } else {
      require((session.mask() & kProfileCollective) != 0, name + " does not ask for collectives");
    }
    OpenCommunicator open = open_communicator(rank, plugin, name, {kChannels, 1u << 20});
    open.traffic->find_fold_order();
    for (uint64_t sequence = 0; sequence < 3; ++sequence) {
      session.allreduce(open, {kFloat32, kSum, 300'000, kChannels, 32u << 10, sequence + 1}, sequence);
    }
    make_bad_calls(*profiler, session.context());
    rank.barrier(name + " before close");
    open.close(plugin);
    session.finalize();
  }
}

}  // namespace player
