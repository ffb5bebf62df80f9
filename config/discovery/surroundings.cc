#include "config/discovery/surroundings.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
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
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "re"));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
    return cannot();
  }
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

std::optional<std::string> value_in(const char* const* environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() + 1 && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
  }
  return std::nullopt;
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
  s.variable = [environment](std::string_view name) { return value_in(environment, name); };
  s.read_file = read_whole;
  s.host_name = own_name;
  s.look_up = [environment](const std::string& name, Nanos deadline) -> Result<std::vector<SrvRecord>> {
    const auto text = read_whole("/etc/resolv.conf");
    ResolvConf conf = parse_resolv_conf(text && *text ? **text : std::string_view());
    if (const auto server = value_in(environment, "SLUICE_DNS_SERVER")) {
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
