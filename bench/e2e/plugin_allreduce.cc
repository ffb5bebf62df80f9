#include "bench/e2e/plugin_allreduce.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/e2e/exit_codes.h"

namespace sluice::bench {
namespace {

constexpr int kHostMemory = 1, kFloat32 = 7, kSum = 0;  // NCCL's numbers
constexpr size_t kHandleBytes = 128;
constexpr size_t kRequestFloats = 64 * 1024;
constexpr size_t kSteps = 8;

std::string last_warning;

void keep_warning(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format,
                  ...) {
  if (level > 2) return;
  std::array<char, 1024> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  last_warning = text.data();
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
  // Workers of one launch are on one machine.
  if (o.reducers.rfind("127.", 0) == 0) set("SLUICE_IFNAME", "=lo");
  return LoadedPlugin(path);
}

void require(int result, const char* what) {
  if (result == 0) return;
  throw Failure(kExitUnavailable, last_warning.empty() ? std::string("the plugin: ") + what : last_warning);
}

}  // namespace

PluginAllreduce::PluginAllreduce(const std::string& path, const WorkerOptions& options,
                                 WorkerSession& bootstrap)
    : plugin_(load(path, options)) {
  const CollNetTable& p = plugin_.collnet();
  require(p.init(&keep_warning), "init failed");
  int devices = 0;
  require(p.devices(&devices), "devices failed");
  if (devices == 0) throw Failure(kExitConfig, "the plugin offers no device here (sluice check plugin)");
  std::exception_ptr failure;
  std::thread service([&] {
    try {
      connect(options, bootstrap);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  service.join();
  if (failure) std::rethrow_exception(failure);
}

void PluginAllreduce::connect(const WorkerOptions& options, WorkerSession& bootstrap) {
  const CollNetTable& p = plugin_.collnet();
  std::vector<uint8_t> mine(kHandleBytes * options.ranks), all(mine.size());
  void* listener = nullptr;
  require(p.listen(0, mine.data() + kHandleBytes * options.rank, &listener), "listen failed");
  bootstrap.allreduce(mine.data(), all.data(), all.size(), wire::DType::kU8,
                      wire::Op::kSum);  // everybody else has zeros there
  std::vector<void*> handles;
  for (uint32_t r = 0; r < options.ranks; ++r) handles.push_back(all.data() + kHandleBytes * r);
  require(p.connect(handles.data(), static_cast<int>(options.ranks), static_cast<int>(options.rank), listener,
                    &comm_),
          "connect failed");
  p.close_listen(listener);
}

PluginAllreduce::~PluginAllreduce() {
  if (comm_ != nullptr) plugin_.collnet().close_coll(comm_);
}

void PluginAllreduce::sum(const float* send, float* recv, size_t count) {
  const CollNetTable& p = plugin_.collnet();
  void* registered = nullptr;
  require(p.reg_mr(comm_, recv, count * sizeof(float), kHostMemory, &registered), "regMr failed");
  std::array<void*, kSteps> steps{};  // a ring, as NCCL's slots are
  size_t issued = 0, done = 0;
  const size_t requests = (count + kRequestFloats - 1) / kRequestFloats;
  while (done < requests) {
    if (issued < requests && issued - done < kSteps) {
      const size_t at = issued * kRequestFloats;
      void*& request = steps[issued % kSteps];
      require(p.iallreduce(comm_, const_cast<float*>(send) + at, recv + at,
                           static_cast<int>(std::min(kRequestFloats, count - at)), kFloat32, kSum, registered,
                           registered, &request),
              "a request failed");
      if (request != nullptr) ++issued;
    }
    int over = 0;
    if (done < issued) require(p.test(steps[done % kSteps], &over, nullptr), "a request failed");
    done += static_cast<size_t>(over);
    if (over == 0) std::this_thread::yield();
  }
  p.dereg_mr(comm_, registered);
}

}  // namespace sluice::bench
