#include "config/discovery/surroundings.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>

#include "config/discovery/srv_lookup.h"
#include "config/whole_file.h"
#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

Result<std::optional<std::string>> read_file(const std::string& path) {
  using End = WholeFile::End;
  WholeFile file = read_whole_file(path, kMaxFile, FileKind::kRegular);
  switch (file.end) {
    case End::kRead: return std::move(file.text);
    case End::kMissing: return std::nullopt;
    case End::kNoFile: return fail(Errc::kInvalidArgument, path + ": no regular file");
    case End::kTooLong:
      return fail(Errc::kInvalidArgument, path + ": longer than " + std::to_string(kMaxFile) + " bytes");
    case End::kUnreadable: break;
  }
  return fail(Errc::kSystem, "can't read " + path + ": " + std::strerror(file.error));
}

using Variables = std::map<std::string, std::string, std::less<>>;

// Of two of a name the first counts, as with getenv.
std::shared_ptr<const Variables> copy_of(const char* const* environment) {
  auto all = std::make_shared<Variables>();
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    all->emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

std::optional<std::string> value_in(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

void sleep_for(Nanos time) {
  timespec left{.tv_sec = time / kSecond, .tv_nsec = time % kSecond};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace

Surroundings process_surroundings(const char* const* environment) {
  Surroundings s;
  const std::shared_ptr<const Variables> all = copy_of(environment);
  s.variable = [all](std::string_view name) { return value_in(*all, name); };
  s.read_file = read_file;
  s.host_name = own_name;
  s.look_up = [all](const std::string& name, Nanos deadline) -> Result<std::vector<SrvRecord>> {
    const auto text = read_file("/etc/resolv.conf");
    ResolvConf conf = parse_resolv_conf(text && *text ? **text : std::string_view());
    if (const auto server = value_in(*all, "SLUICE_DNS_SERVER")) {
      auto parsed = parse_name_server(*server);
      if (!parsed) return add_context("SLUICE_DNS_SERVER", parsed.error());
      conf.servers = {*parsed};
    }
    return look_up_srv(name, conf, deadline);
  };
  s.now = monotonic_now;
  s.pause = sleep_for;
  return s;
}

}  // namespace sluice::config::discovery
