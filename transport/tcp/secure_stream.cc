#include "transport/tcp/secure_stream.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/instrumented.h"

namespace sluice::transport::tcp {
namespace {

constexpr const char* kFile = "libsluice_tls.so";

// The directory of the program or library that contains this code.
std::string own_directory() {
  Dl_info info{};
  static const char inside = 0;
  if (::dladdr(&inside, &info) == 0 || info.dli_fname == nullptr) return {};
  std::string file = info.dli_fname;
  if (file.find('/') == std::string::npos) {
    // The program was found through PATH, so the name has no directory.
    std::array<char, 4096> path;
    const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
    if (n <= 0) return {};
    file.assign(path.data(), static_cast<size_t>(n));
  }
  return file.substr(0, file.rfind('/') + 1);
}

std::vector<std::string> library_paths() {
  if (const char* const path = std::getenv("SLUICE_TLS_LIBRARY"); path != nullptr && *path != 0)
    return {path};
  std::vector<std::string> out;
  if (const std::string directory = own_directory(); !directory.empty()) {
    for (const char* const relative : {"", "../lib/", "../" SLUICE_LIBDIR "/"})
      out.push_back(directory + relative + kFile);
  }
  out.emplace_back(kFile);
  return out;
}

#if SLUICE_INSTRUMENTED
constexpr int kLoad = RTLD_NOW | RTLD_LOCAL;  // the sanitizer's runtime library must be found first
#else
// The training process may have another OpenSSL. So the library hides its symbols and prefers its own.
constexpr int kLoad = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

Result<const SluiceTlsApi*> load() {
  std::string cause;
  for (const std::string& path : library_paths()) {
    void* const library = ::dlopen(path.c_str(), kLoad);
    if (library == nullptr) {
      // The error of a file that exists is more useful than the error of a path without a file.
      const char* const text = ::dlerror();
      if (cause.empty() || (path.find('/') != std::string::npos && ::access(path.c_str(), F_OK) == 0))
        cause = text != nullptr ? text : "unknown error";
      continue;
    }
    const auto get = reinterpret_cast<decltype(&sluice_tls_v2)>(::dlsym(library, "sluice_tls_v2"));
    const SluiceTlsApi* const api = get == nullptr ? nullptr : get();
    if (api != nullptr && api->version == kSluiceTlsVersion) return api;  // never unloaded
    cause = path + " has an incompatible version";
    ::dlclose(library);
  }
  return fail(Errc::kUnsupported, "cannot load " + std::string(kFile) + " for TLS: " + cause +
                                      "; set SLUICE_TLS_LIBRARY to its path");
}

// Loads the library once per process. A later call tries again after a failure.
Result<const SluiceTlsApi*> library() {
  static std::mutex mutex;
  static const SluiceTlsApi* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded;
  auto api = load();
  if (api) loaded = *api;
  return api;
}

const char* file_or_null(const std::string& path) noexcept {
  return path.empty() ? nullptr : path.c_str();
}

const unsigned char* bytes_of(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::make(bool server, const TlsFiles& files,
                                                           uint64_t rekey_after) {
  auto api = library();
  if (!api) return tl::unexpected(api.error());
  const SluiceTlsFiles given{.server = server ? 1 : 0,
                             .certificate = file_or_null(files.certificate),
                             .key = file_or_null(files.key),
                             .ca = file_or_null(files.ca),
                             .rekey_after = rekey_after};
  std::array<char, 512> error{};
  SluiceTlsContext* const context = (*api)->make_context(&given, error.data(), error.size());
  if (context == nullptr) return fail(Errc::kInvalidArgument, std::string("TLS: ") + error.data());
  return std::make_shared<const TlsContext>(**api, *context, !files.ca.empty());
}

Result<std::unique_ptr<SecureStream>> TlsContext::open(int fd, const TlsPeer& peer) const {
  const SluiceTlsPeer given{.identity = reinterpret_cast<const unsigned char*>(peer.identity.data()),
                            .identity_bytes = peer.identity.size(),
                            .psk = peer.psk ? bytes_of(peer.psk->data()) : nullptr,
                            .host = file_or_null(peer.host),
                            .binding = bytes_of(peer.binding.data()),
                            .binding_bytes = peer.binding.size()};
  std::array<char, 512> error{};
  SluiceTlsStream* const stream = api_.open(&context_, fd, &given, error.data(), error.size());
  if (stream == nullptr) return fail(Errc::kInvalidArgument, std::string("TLS: ") + error.data());
  return std::make_unique<SecureStream>(api_, *stream);
}

}  // namespace sluice::transport::tcp
