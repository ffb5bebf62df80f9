#include "config/discovery/surroundings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>

#include "config/discovery/srv_lookup.h"
#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

struct Close {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

Result<std::optional<std::string>> read_whole(const std::string& path) {
  const auto cannot = [&] { return fail(Errc::kSystem, "can't read " + path + ": " + std::strerror(errno)); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a pipe nobody may ever write
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
    return cannot();
  }
  const std::unique_ptr<std::FILE, Close> file(::fdopen(fd, "r"));
  if (!file) {
    ::close(fd);
    return cannot();
  }
  struct stat kind {};
  if (::fstat(fd, &kind) != 0) return cannot();
  if (!S_ISREG(kind.st_mode)) return fail(Errc::kInvalidArgument, path + ": no regular file");
  std::string text;
  std::array<char, 4096> piece;
  while (const size_t n = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), n);
    if (text.size() > kMaxFile) {
      return fail(Errc::kInvalidArgument, path + ": longer than " + std::to_string(kMaxFile) + " bytes");
    }
  }
  if (std::ferror(file.get()) != 0) return cannot();
  return text;
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
  s.read_file = read_whole;
  s.host_name = own_name;
  s.look_up = [all](const std::string& name, Nanos deadline) -> Result<std::vector<SrvRecord>> {
    const auto text = read_whole("/etc/resolv.conf");
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
