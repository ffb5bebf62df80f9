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

// The folder of the program or library that this code is part of.
std::string own_folder() {
  Dl_info info{};
  static const char inside = 0;
  if (::dladdr(&inside, &info) == 0 || info.dli_fname == nullptr) return {};
  std::string file = info.dli_fname;
  if (file.find('/') == std::string::npos) {
    // A program that was found by PATH: its name as it was called says nothing.
    std::array<char, 4096> path;
    const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
    if (n <= 0) return {};
    file.assign(path.data(), static_cast<size_t>(n));
  }
  return file.substr(0, file.rfind('/') + 1);
}

std::vector<std::string> places() {
  if (const char* const told = std::getenv("SLUICE_TLS_LIBRARY"); told != nullptr && *told != 0)
    return {told};
  std::vector<std::string> out;
  if (const std::string folder = own_folder(); !folder.empty()) {
    for (const char* const from : {"", "../lib/", "../" SLUICE_LIBDIR "/"})
      out.push_back(folder + from + kFile);
  }
  out.emplace_back(kFile);
  return out;
}

#if SLUICE_INSTRUMENTED
constexpr int kLoad = RTLD_NOW | RTLD_LOCAL;  // the sanitizer's run-time library must be met first
#else
// Its symbols to itself alone, and those it needs taken from what it brings: the training process may have
// another OpenSSL.
constexpr int kLoad = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

Result<const SluiceTlsApi*> load() {
  std::string why;
  for (const std::string& place : places()) {
    void* const library = ::dlopen(place.c_str(), kLoad);
    if (library == nullptr) {
      // A file that is there and can't be loaded has more to say than places where there is none.
      const char* const text = ::dlerror();
      if (why.empty() || (place.find('/') != std::string::npos && ::access(place.c_str(), F_OK) == 0))
        why = text != nullptr ? text : "cannot be loaded";
      continue;
    }
    const auto get = reinterpret_cast<decltype(&sluice_tls_v1)>(::dlsym(library, "sluice_tls_v1"));
    const SluiceTlsApi* const api = get == nullptr ? nullptr : get();
    if (api != nullptr && api->version == kSluiceTlsVersion) return api;  // never unloaded
    why = place + " is of another version";
    ::dlclose(library);
  }
  return fail(Errc::kUnsupported, "TLS needs " + std::string(kFile) +
                                      ", which is not there or can't be used (SLUICE_TLS_LIBRARY says where "
                                      "else it is): " +
                                      why);
}

// One library for the process; a failure is tried again.
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
  std::array<char, 512> why{};
  SluiceTlsContext* const context = (*api)->make_context(&given, why.data(), why.size());
  if (context == nullptr) return fail(Errc::kInvalidArgument, std::string("TLS: ") + why.data());
  return std::make_shared<const TlsContext>(**api, *context, !files.ca.empty());
}

Result<std::unique_ptr<SecureStream>> TlsContext::open(int fd, const TlsPeer& peer) const {
  const SluiceTlsPeer given{.identity = reinterpret_cast<const unsigned char*>(peer.identity.data()),
                            .identity_bytes = peer.identity.size(),
                            .psk = peer.psk ? bytes_of(peer.psk->data()) : nullptr,
                            .host = file_or_null(peer.host),
                            .bound = bytes_of(peer.bound.data()),
                            .bound_bytes = peer.bound.size()};
  std::array<char, 512> why{};
  SluiceTlsStream* const stream = api_.open(&context_, fd, &given, why.data(), why.size());
  if (stream == nullptr) return fail(Errc::kInvalidArgument, std::string("TLS: ") + why.data());
  return std::make_unique<SecureStream>(api_, *stream);
}

}  // namespace sluice::transport::tcp
