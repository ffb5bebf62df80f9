#include "bench/e2e/allreduce/plugin_allreduce.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::bench {
namespace {

constexpr int kHostMemory = 1;  // NCCL_PTR_HOST
constexpr size_t kHandleBytes = 128;

// The threads of the plugin log too.
std::mutex warning_mutex;
std::string last_warning;

// NCCL prints the log lines of a plugin only if NCCL_DEBUG asks for them.
bool shows_warnings() {
  const char* const level = std::getenv("NCCL_DEBUG");
  return level != nullptr && std::strcmp(level, "VERSION") != 0;
}

void store_warning(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format,
                   ...) {
  if (level > 2) return;
  std::array<char, 1024> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(warning_mutex);
  last_warning = text.data();
  if (shows_warnings()) std::fprintf(stderr, "%s\n", text.data());
}

LoadedPlugin load_configured_plugin(const std::string& path, const WorkerOptions& o) {
  const auto set = [](const char* name, const std::string& value) {
    if (!value.empty()) setenv(name, value.c_str(), 0);
  };
  set("SLUICE_NET", "always");
  set("SLUICE_REDUCERS", o.reducers);
  if (!o.keep_results) set("SLUICE_SURVIVE", "0");
  // The workers of a local launch are on one machine.
  if (o.reducers.rfind("127.", 0) == 0) set("SLUICE_IFNAME", "=lo");
  return LoadedPlugin(path);
}

int nccl_op(wire::Op op) {
  switch (op) {
    case wire::Op::kSum: return 0;
    case wire::Op::kProd: return 1;
    case wire::Op::kMax: return 2;
    case wire::Op::kMin: return 3;
    case wire::Op::kAvg: break;
  }
  throw Failure(kExitUsage, "--through-plugin does not support avg: NCCL computes averages from sums");
}

void require_success(int result, const char* message) {
  if (result == 0) return;
  const std::lock_guard lock(warning_mutex);
  throw Failure(kExitUnavailable,
                last_warning.empty() ? std::string("NCCL plugin: ") + message : last_warning);
}

}  // namespace

PluginAllreduce::PluginAllreduce(const PluginOptions& options, const WorkerOptions& worker,
                                 WorkerSession& bootstrap)
    : options_(options),
      plugin_(load_configured_plugin(options.file, worker)),
      ring_(std::max(1u, options.steps)) {
  const CollNetTable& p = plugin_.collnet();
  require_success(p.init(&store_warning), "init failed");
  int devices = 0;
  require_success(p.devices(&devices), "devices failed");
  if (devices == 0)
    throw Failure(kExitConfig,
                  "the NCCL plugin offers no device on this host; run `sluice check plugin` for the reason");
  std::exception_ptr failure;
  std::thread service([&] {
    try {
      connect(worker, bootstrap);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  service.join();
  if (failure) std::rethrow_exception(failure);
}

void PluginAllreduce::connect(const WorkerOptions& worker, WorkerSession& bootstrap) {
  const CollNetTable& p = plugin_.collnet();
  std::vector<uint8_t> mine(kHandleBytes * worker.ranks), all(mine.size());
  void* listener = nullptr;
  require_success(p.listen(0, mine.data() + kHandleBytes * worker.rank, &listener), "listen failed");
  bootstrap.allreduce(mine.data(), all.data(), all.size(), wire::DType::kU8,
                      wire::Op::kSum);  // all other ranks contribute zeros there
  std::vector<void*> handles;
  for (uint32_t r = 0; r < worker.ranks; ++r) handles.push_back(all.data() + kHandleBytes * r);
  const int connected = p.connect(handles.data(), static_cast<int>(worker.ranks),
                                  static_cast<int>(worker.rank), listener, &comm_);
  p.close_listen(listener);
  require_success(connected, "connect failed");
}

PluginAllreduce::~PluginAllreduce() {
  if (comm_ != nullptr) plugin_.collnet().close_coll(comm_);
}

void PluginAllreduce::allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op) {
  const CollNetTable& p = plugin_.collnet();
  const int data_type = static_cast<int>(dtype);  // the wire format uses the numbers of NCCL
  const int operation = nccl_op(op);
  const size_t size = wire::size_of(dtype);
  const size_t max_count = std::max<size_t>(1, options_.request_bytes / size);
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const size_t requests = (count + max_count - 1) / max_count;
  void* registered = nullptr;
  require_success(p.reg_mr(comm_, recv, count * size, kHostMemory, &registered), "regMr failed");
  for (size_t issued = 0, done = 0; done < requests;) {
    if (issued < requests && issued - done < ring_.size()) {
      const size_t at = issued * max_count;
      void*& request = ring_[issued % ring_.size()];
      require_success(p.iallreduce(comm_, const_cast<std::byte*>(from) + at * size, to + at * size,
                                   static_cast<int>(std::min(max_count, count - at)), data_type, operation,
                                   registered, registered, &request),
                      "a request failed");
      if (request != nullptr) ++issued;
    }
    int finished = 0;
    if (done < issued)
      require_success(p.test(ring_[done % ring_.size()], &finished, nullptr), "a request failed");
    done += static_cast<size_t>(finished);
    if (finished == 0) std::this_thread::yield();
  }
  p.dereg_mr(comm_, registered);
}

}  // namespace sluice::bench
