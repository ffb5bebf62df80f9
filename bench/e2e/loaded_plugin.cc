#include "bench/e2e/loaded_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "bench/e2e/exit_codes.h"

namespace sluice::bench {
namespace {

constexpr const char* kFile = "libnccl-net-sluice.so";
constexpr int kNewest = 20;  // of the versions looked for

std::string default_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const char* beside : {"../lib", "../lib/x86_64-linux-gnu", "../lib64"}) {
      auto path = program.parent_path() / beside / kFile;
      if (std::filesystem::exists(path, error)) return std::filesystem::weakly_canonical(path).string();
    }
  }
  return kFile;
}

}  // namespace

LoadedPlugin::LoadedPlugin(const std::string& path) : path_(path.empty() ? default_path() : path) {
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw Failure(kExitConfig, fmt::format("the plugin does not load: {}", dlerror()));
  collnet_ = static_cast<const CollNetTable*>(dlsym(library_, "ncclCollNetPlugin_v8"));
  if (collnet_ == nullptr || versions_of("ncclNetPlugin").empty()) {
    throw Failure(kExitConfig, fmt::format("{} exports no net and CollNet for NCCL", path_));
  }
}

std::vector<int> LoadedPlugin::versions_of(const char* symbol) const {
  std::vector<int> found;
  for (int v = 1; v <= kNewest; ++v) {
    if (dlsym(library_, fmt::format("{}_v{}", symbol, v).c_str()) != nullptr) found.push_back(v);
  }
  return found;
}

std::string LoadedPlugin::versions() const {
  std::string text;
  for (const auto& [word, symbol] :
       {std::pair{"net", "ncclNetPlugin"}, {"collnet", "ncclCollNetPlugin"}, {"tuner", "ncclTunerPlugin"}}) {
    const auto found = versions_of(symbol);
    if (!found.empty())
      text += fmt::format("{}{} v{}-v{}", text.empty() ? "" : ", ", word, found.front(), found.back());
  }
  return text;
}

}  // namespace sluice::bench
