#include "cli/commands/nccl_libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "config/nccl_releases.h"

namespace sluice::cli {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr const char* kWheelFile = "/nvidia/nccl/lib/libnccl.so.2";

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

void add_matches(const std::string& pattern, std::vector<std::string>& paths) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

// The places of Python packages: the environment in use, the user's, the system's.
std::vector<std::string> find_wheels() {
  std::vector<std::string> paths;
  std::istringstream folders{std::string(variable("PYTHONPATH"))};
  for (std::string folder; std::getline(folders, folder, ':');) add_matches(folder + kWheelFile, paths);
  for (std::string prefix : {std::string(variable("VIRTUAL_ENV")), std::string(variable("CONDA_PREFIX")),
                             std::string(variable("HOME")) + "/.local", std::string("/usr/local"),
                             std::string("/usr"), std::string("/opt/conda")}) {
    if (prefix.empty()) continue;
    prefix += "/lib/python3";
    for (const char* folder : {"*/site-packages", "*/dist-packages", "/dist-packages"})
      add_matches(prefix + folder + kWheelFile, paths);
  }
  return paths;
}

NcclLibrary load(const std::string& file) {
  NcclLibrary library{.path = file, .release = 0, .error = {}};
  // Not closed: closing NCCL while its threads start would crash, and this process ends soon.
  void* const handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    library.error = dlerror();
    return library;
  }
  void* const symbol = dlsym(handle, "ncclGetVersion");
  if (symbol == nullptr || reinterpret_cast<int (*)(int*)>(symbol)(&library.release) != 0) {
    library.release = 0;
    library.error = file + ": no ncclGetVersion";
    return library;
  }
  library.release = config::release_of_version(library.release);
  Dl_info info{};
  if (dladdr(symbol, &info) != 0) library.path = info.dli_fname;
  return library;
}

// True when the environment has the remedy of a defect already.
bool is_remedied(config::NcclDefect defect) {
  if (defect == config::NcclDefect::kPluginForgotten)
    return !variable("NCCL_NET_PLUGIN_REF_COUNT").empty() && variable("NCCL_NET_PLUGIN_REF_COUNT") != "0";
  return defect == config::NcclDefect::kChildLosesCollNet &&
         variable("NCCL_COMM_SPLIT_SHARE_RESOURCES") == "1";
}

void print_findings(int release) {
  if (release < config::kOldestCollNetRelease) {
    std::printf("  note       NCCL %s is older than %s: it uses the plugin's network, but not the reducers\n",
                config::release_text(release).c_str(),
                config::release_text(config::kOldestCollNetRelease).c_str());
  }
  if (release > config::kNewestKnownRelease) {
    std::printf(
        "  note       NCCL %s is newer than %s, the newest release that this plugin was checked with\n",
        config::release_text(release).c_str(), config::release_text(config::kNewestKnownRelease).c_str());
  }
  for (const config::NcclDefectNote& note : config::nccl_defects()) {
    if (release < note.first || release > note.last || is_remedied(note.defect)) continue;
    std::printf("  note       %s; %s\n", std::string(note.effect).c_str(), std::string(note.remedy).c_str());
  }
}

// A network plugin of a provider, known by its folder or by the variables of its environment.
struct OtherPlugin {
  const char* name;
  const char* folder;
  std::string_view variables;  // prefix
};
constexpr OtherPlugin kOtherPlugins[] = {
    {"aws-ofi-nccl (EFA)", "/opt/amazon/ofi-nccl", "OFI_NCCL_"},
    {"aws-ofi-nccl (EFA)", "/opt/aws-ofi-nccl", "FI_PROVIDER=efa"},
    {"GPUDirect-TCPX", "/usr/local/tcpx", "NCCL_GPUDIRECTTCPX_"},
    {"GPUDirect-TCPXO", "/usr/local/fastrak", "NCCL_FASTRAK_"},
    {"gIB (RoCE of Google Cloud)", "/usr/local/gib", "NCCL_GIB_"},
};

bool is_present(const OtherPlugin& plugin) {
  std::error_code none;
  if (std::filesystem::exists(plugin.folder, none)) return true;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(plugin.variables)) return true;
  }
  return false;
}

// The plugin that NCCL loads by default, or an empty string.
std::string default_plugin() {
  void* const handle = dlopen("libnccl-net.so", RTLD_LAZY | RTLD_LOCAL);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return {};
  return map->l_name;
}

}  // namespace

void warn_about_other_plugins(const std::string& own_path) {
  std::vector<std::string> found;
  std::error_code none;
  if (const std::string path = default_plugin();
      !path.empty() && !std::filesystem::equivalent(path, own_path, none))
    found.push_back(path);
  for (const OtherPlugin& plugin : kOtherPlugins) {
    if (is_present(plugin) && std::ranges::find(found, plugin.name) == found.end())
      found.emplace_back(plugin.name);
  }
  for (const std::string& name : found) {
    std::printf(
        "warning      another network plugin is installed: %s; NCCL_NET_PLUGIN=sluice replaces it for all "
        "traffic between nodes, see docs/guides/network-plugins.md\n",
        name.c_str());
  }
}

std::vector<NcclLibrary> find_nccl_libraries(const std::string& file) {
  if (!file.empty()) return {load(file)};
  std::vector<NcclLibrary> libraries;
  std::vector<std::string> seen;
  const auto add = [&](NcclLibrary library) {
    std::error_code none;
    const std::string path = std::filesystem::weakly_canonical(library.path, none).string();
    if (std::ranges::find(seen, path) != seen.end()) return;
    seen.push_back(path);
    libraries.push_back(std::move(library));
  };
  if (NcclLibrary installed = load(kName); installed.error.empty()) add(std::move(installed));
  for (const std::string& path : find_wheels()) add(load(path));
  return libraries;
}

void print_nccl_libraries(const std::vector<NcclLibrary>& libraries) {
  if (libraries.empty())
    std::printf("nccl         none found; name the job's libnccl.so.2 with --nccl FILE\n");
  for (const NcclLibrary& library : libraries) {
    if (!library.error.empty()) {
      std::printf("nccl         %s\n", library.error.c_str());
      continue;
    }
    std::printf("nccl         %s: %s\n", library.path.c_str(), config::release_text(library.release).c_str());
    print_findings(library.release);
  }
}

}  // namespace sluice::cli
