#include "bench/e2e/pool/local_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "config/pool.h"
#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::bench {
namespace {

constexpr Nanos kPortFilePollInterval = 2 * kMillisecond;  // the end of a child wakes the loop earlier

}  // namespace

Result<TemporaryDirectory> TemporaryDirectory::make() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/sluice-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return fail(Errc::kSystem, fmt::format("cannot create directory {}: {}", path, std::strerror(errno)));
  }
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<uint16_t> wait_for_port(ProcessGroup& processes, size_t child, const std::string& path,
                               Nanos deadline) {
  for (;;) {
    std::ifstream file(path);
    uint32_t port = 0;
    if (file >> port && port > 0 && port <= 65535) return static_cast<uint16_t>(port);
    const Nanos now = monotonic_now();
    if (now >= deadline) return fail(Errc::kTimeout, fmt::format("no port in {} before the deadline", path));
    if (auto ended = processes.wait(std::min(deadline, now + kPortFilePollInterval)))
      return fail(Errc::kSystem, ended->text());
    if (processes.interrupted() != 0) return fail(Errc::kShutdown, "interrupted by a signal");
    if (!processes.running(child)) return fail(Errc::kSystem, "the process has ended");
  }
}

namespace {

// Names a free port of this host as the place where the ranks of a run without reducers meet. Another process
// could take the port before rank 0 does; the run then fails with an error that names it.
Result<void> choose_meeting_point() {
  const auto listener = transport::tcp::listen_on("127.0.0.1", 0, {});
  if (!listener) return tl::unexpected(listener.error());
  const auto port = transport::tcp::bound_port(listener->fd());
  if (!port) return tl::unexpected(port.error());
  ::setenv("SLUICE_RENDEZVOUS", fmt::format("127.0.0.1:{}", *port).c_str(), 1);
  return {};
}

}  // namespace

Result<LocalPool> LocalPool::start(ProcessGroup& processes, const LocalPoolOptions& options) {
  if (options.reducers == 0) {
    if (auto chosen = choose_meeting_point(); !chosen) return tl::unexpected(chosen.error());
    LocalPool none;
    none.list_ = config::kNoReducers;
    return none;
  }
  auto directory = TemporaryDirectory::make();
  if (!directory) return tl::unexpected<Error>(directory.error());
  LocalPool pool;
  for (uint32_t i = 0; i < options.reducers; ++i) {
    ChildSpec spec{.name = fmt::format("reducer {}", i), .arguments = {}, .piped = false};
    spec.arguments = {"--log-level",
                      options.log_level,
                      "reducer",
                      "--listen",
                      "127.0.0.1:0",
                      "--port-file",
                      fmt::format("{}/{}", directory->path(), i)};
    if (options.lanes != 0) {
      const std::string lanes = std::to_string(options.lanes);
      spec.arguments.insert(spec.arguments.end(), {"--lanes", lanes, "--lanes-per-session", lanes});
    }
    if (!options.payload_crc) spec.arguments.emplace_back("--no-crc");
    if (options.health) spec.arguments.emplace_back("--health");
    if (!options.state.empty()) spec.arguments.insert(spec.arguments.end(), {"--state", options.state});
    auto child = processes.start(spec);
    if (!child) return tl::unexpected<Error>(child.error());
    pool.children_.push_back(*child);
  }
  const Nanos deadline = monotonic_now() + options.start_timeout;
  for (uint32_t i = 0; i < options.reducers; ++i) {
    auto port =
        wait_for_port(processes, pool.children_[i], fmt::format("{}/{}", directory->path(), i), deadline);
    if (!port) return add_context(fmt::format("cannot start reducer {}", i), port.error());
    pool.list_ += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", *port);
  }
  return pool;
}

}  // namespace sluice::bench
