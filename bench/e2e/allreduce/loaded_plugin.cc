#include "bench/e2e/allreduce/loaded_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::bench {
namespace {

constexpr const char* kPluginFile = "libnccl-net-sluice.so";
constexpr int kMaxVersion = 20;  // largest ABI version that versions_of() looks up

std::string default_plugin_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const char* folder : {"../lib", "../lib/x86_64-linux-gnu", "../lib64"}) {
      auto path = program.parent_path() / folder / kPluginFile;
      if (std::filesystem::exists(path, error)) return std::filesystem::weakly_canonical(path).string();
    }
  }
  return kPluginFile;
}

}  // namespace

LoadedPlugin::LoadedPlugin(const std::string& path) : path_(path.empty() ? default_plugin_path() : path) {
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr)
    throw Failure(kExitConfig, fmt::format("cannot load the NCCL plugin: {}", dlerror()));
  collnet_ = static_cast<const CollNetTable*>(dlsym(library_, "ncclCollNetPlugin_v8"));
  if (collnet_ == nullptr || versions_of("ncclNetPlugin").empty()) {
    throw Failure(kExitConfig,
                  fmt::format("{} is not an NCCL plugin: it exports no net and CollNet tables", path_));
  }
}

std::vector<int> LoadedPlugin::versions_of(const char* symbol) const {
  std::vector<int> found;
  for (int v = 1; v <= kMaxVersion; ++v) {
    if (dlsym(library_, fmt::format("{}_v{}", symbol, v).c_str()) != nullptr) found.push_back(v);
  }
  return found;
}

std::string LoadedPlugin::versions() const {
  std::string text;
  for (const auto& [kind, symbol] :
       {std::pair{"net", "ncclNetPlugin"}, {"collnet", "ncclCollNetPlugin"}, {"tuner", "ncclTunerPlugin"}}) {
    const auto found = versions_of(symbol);
    if (!found.empty())
      text += fmt::format("{}{} v{}-v{}", text.empty() ? "" : ", ", kind, found.front(), found.back());
  }
  return text;
}

}  // namespace sluice::bench
