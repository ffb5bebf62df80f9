#include "nccl_plugin/host/nccl_release.h"

#include <dlfcn.h>

#include <atomic>
#include <exception>

#include "config/nccl_releases.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl {
namespace {

constexpr int kFirstCollNetTable = 8;  // of 2.20
std::atomic<int> recorded_release{0};
std::atomic<bool> logged{false};

}  // namespace

int find_release(abi::Logger logger) noexcept {
  Dl_info found{};
  if (logger == nullptr || dladdr(reinterpret_cast<void*>(logger), &found) == 0) return 0;
  // Does not load the library again. Fails for the program itself, which RTLD_DEFAULT covers.
  void* const library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const symbol = dlsym(library != nullptr ? library : RTLD_DEFAULT, "ncclGetVersion");
  int version = 0;
  if (symbol == nullptr || reinterpret_cast<int (*)(int*)>(symbol)(&version) != abi::kSuccess) version = 0;
  if (library != nullptr) dlclose(library);
  return version <= 0 ? 0 : config::release_of_version(version);
}

std::string too_old_text(int release, int net_version) {
  if (net_version >= kFirstCollNetTable && (release == 0 || release >= config::kOldestCollNetRelease))
    return {};
  const std::string found =
      release == 0 ? "with net v" + std::to_string(net_version) : config::release_text(release);
  return "NCCL " + found +
         " is too old: CollNet through reducers needs 2.20 or newer, because older releases do not "
         "keep requests in one order on all ranks";
}

std::string too_new_text(int release, int net_version) {
  if (release <= config::kNewestKnownRelease) return {};
  return "NCCL " + config::release_text(release) + " is newer than " +
         config::release_text(config::kNewestKnownRelease) +
         ", the newest release that this plugin was checked with; it uses net v" +
         std::to_string(net_version);
}

void record_release(abi::Logger logger) noexcept {
  if (nccl_release() == 0) recorded_release.store(find_release(logger), std::memory_order_relaxed);
}

void record_nccl(abi::Logger logger, int net_version) noexcept {
  try {
    const int release = find_release(logger);
    recorded_release.store(release, std::memory_order_relaxed);
    if (logged.exchange(true, std::memory_order_relaxed)) return;
    if (const std::string old = too_old_text(release, net_version); !old.empty()) {
      info("offload OFF (%s)", old.c_str());
      append_refusal(OffReason::kNcclTooOld, old);
    } else if (const std::string recent = too_new_text(release, net_version); !recent.empty()) {
      info("%s", recent.c_str());
    }
  } catch (const std::exception&) {  // a missing log line must not fail the job
  }
}

int nccl_release() noexcept {
  return recorded_release.load(std::memory_order_relaxed);
}

}  // namespace sluice::nccl
