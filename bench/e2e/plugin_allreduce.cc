#include "bench/e2e/plugin_allreduce.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/e2e/exit_codes.h"

namespace sluice::bench {
namespace {

constexpr int kHostMemory = 1;  // NCCL's number
constexpr size_t kHandleBytes = 128;

// Lines come from the plugin's threads too.
std::mutex lines;
std::string last_warning;

// As NCCL shows a plugin's lines where it was asked for them.
bool shows_warnings() {
  const char* const level = std::getenv("NCCL_DEBUG");
  return level != nullptr && std::strcmp(level, "VERSION") != 0;
}

void keep_warning(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format,
                  ...) {
  if (level > 2) return;
  std::array<char, 1024> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(lines);
  last_warning = text.data();
  if (shows_warnings()) std::fprintf(stderr, "%s\n", text.data());
}

LoadedPlugin load(const std::string& path, const WorkerOptions& o) {
  const auto set = [](const char* name, const std::string& value) {
    if (!value.empty()) setenv(name, value.c_str(), 0);
  };
  set("SLUICE_NET", "always");
  set("SLUICE_REDUCERS", o.reducers);
  set("SLUICE_JOB", o.job);
  set("SLUICE_KEY_FILE", o.key_file);
  set("SLUICE_TOKEN_FILE", o.token_file);
  if (!o.keep_results) set("SLUICE_SURVIVE", "0");
  // Workers of one launch are on one machine.
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
  throw Failure(kExitUsage, "NCCL asks no plugin for averages: it scales sums itself");
}

void require(int result, const char* what) {
  if (result == 0) return;
  const std::lock_guard lock(lines);
  throw Failure(kExitUnavailable, last_warning.empty() ? std::string("the plugin: ") + what : last_warning);
}

}  // namespace

PluginAllreduce::PluginAllreduce(const PluginOptions& options, const WorkerOptions& worker,
                                 WorkerSession& bootstrap)
    : options_(options), plugin_(load(options.file, worker)), ring_(std::max(1u, options.steps)) {
  const CollNetTable& p = plugin_.collnet();
  require(p.init(&keep_warning), "init failed");
  int devices = 0;
  require(p.devices(&devices), "devices failed");
  if (devices == 0) throw Failure(kExitConfig, "the plugin offers no device here (sluice check plugin)");
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
  require(p.listen(0, mine.data() + kHandleBytes * worker.rank, &listener), "listen failed");
  bootstrap.allreduce(mine.data(), all.data(), all.size(), wire::DType::kU8,
                      wire::Op::kSum);  // everybody else has zeros there
  std::vector<void*> handles;
  for (uint32_t r = 0; r < worker.ranks; ++r) handles.push_back(all.data() + kHandleBytes * r);
  const int connected = p.connect(handles.data(), static_cast<int>(worker.ranks),
                                  static_cast<int>(worker.rank), listener, &comm_);
  p.close_listen(listener);
  require(connected, "connect failed");
}

PluginAllreduce::~PluginAllreduce() {
  if (comm_ != nullptr) plugin_.collnet().close_coll(comm_);
}

void PluginAllreduce::allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op) {
  const CollNetTable& p = plugin_.collnet();
  const int data_type = static_cast<int>(dtype);  // the wire has NCCL's numbers
  const int operation = nccl_op(op);
  const size_t size = wire::size_of(dtype);
  const size_t most = std::max<size_t>(1, options_.request_bytes / size);
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const size_t requests = (count + most - 1) / most;
  void* registered = nullptr;
  require(p.reg_mr(comm_, recv, count * size, kHostMemory, &registered), "regMr failed");
  for (size_t issued = 0, done = 0; done < requests;) {
    if (issued < requests && issued - done < ring_.size()) {
      const size_t at = issued * most;
      void*& request = ring_[issued % ring_.size()];
      require(p.iallreduce(comm_, const_cast<std::byte*>(from) + at * size, to + at * size,
                           static_cast<int>(std::min(most, count - at)), data_type, operation, registered,
                           registered, &request),
              "a request failed");
      if (request != nullptr) ++issued;
    }
    int over = 0;
    if (done < issued) require(p.test(ring_[done % ring_.size()], &over, nullptr), "a request failed");
    done += static_cast<size_t>(over);
    if (over == 0) std::this_thread::yield();
  }
  p.dereg_mr(comm_, registered);
}

}  // namespace sluice::bench
