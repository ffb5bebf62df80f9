#include "config/discovery/environment.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <map>
#include <memory>
#include <utility>

#include "config/discovery/srv_lookup.h"
#include "config/file_contents.h"
#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

Result<std::optional<std::string>> read_file(const std::string& path) {
  FileContents file = read_file_contents(path, kMaxFile, FileKind::kRegular);
  if (file.status == FileContents::Status::kNotFound) return std::nullopt;
  return text_or_error(std::move(file), path, kMaxFile, "file");
}

using Variables = std::map<std::string, std::string, std::less<>>;

// The first of several entries with one name wins, as with getenv.
std::shared_ptr<const Variables> copy_variables(const char* const* environment) {
  auto all = std::make_shared<Variables>();
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    all->emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

std::optional<std::string> find_value(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(i->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      out.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return out;
}

void sleep_for(Nanos duration) {
  timespec remaining{.tv_sec = duration / kSecond, .tv_nsec = duration % kSecond};
  while (::nanosleep(&remaining, &remaining) != 0 && errno == EINTR) {
  }
}

}  // namespace

Environment process_environment(const char* const* environment) {
  Environment env;
  const std::shared_ptr<const Variables> variables = copy_variables(environment);
  env.variable = [variables](std::string_view name) { return find_value(*variables, name); };
  env.read_file = read_file;
  env.host_name = own_host_name;
  env.addresses = own_addresses;
  env.resolve_srv = [variables](const std::string& name, Nanos deadline) -> Result<std::vector<SrvRecord>> {
    return look_up_srv(name, find_value(*variables, "SLUICE_DNS_SERVER").value_or(""), deadline);
  };
  env.now = monotonic_now;
  env.sleep = sleep_for;
  return env;
}

}  // namespace sluice::config::discovery
