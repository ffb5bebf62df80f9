#include "tests/conformance/coordinator/etcd_process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "core/clock.h"
#include "store/coordinator/etcd/etcd_coordinator.h"

namespace sluice::test {
namespace {

constexpr Nanos kStartDeadline = 60 * kSecond;

std::string etcd_program() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "/usr/bin:/bin" : path) + ":/usr/sbin:/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/etcd";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

// A port that was free a moment ago. Another process may bind it first, then start() tries others.
uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace

std::string EtcdProcess::skip_reason() {
  return etcd_program().empty() ? "needs program:etcd: etcd is not installed" : "";
}

void EtcdProcess::start() {
  const bool is_first = port_ == 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (is_first) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_.path() + "/data", ignored);
      port_ = free_port();
      peer_port_ = free_port();
    }
    spawn();
    if (wait_until_ready()) return;
    kill();
    if (log_end().find("address already in use") == std::string::npos) break;
  }
  throw std::runtime_error("etcd did not start:\n" + log_end());
}

void EtcdProcess::spawn() {
  const std::string program = etcd_program();
  const std::string client = "http://127.0.0.1:" + std::to_string(port_);
  const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
  // Short elections allow short leases.
  std::vector<std::string> words = {program,
                                    "--data-dir=" + folder_.path() + "/data",
                                    "--name=test",
                                    "--listen-client-urls=" + client,
                                    "--advertise-client-urls=" + client,
                                    "--listen-peer-urls=" + peer,
                                    "--initial-advertise-peer-urls=" + peer,
                                    "--initial-cluster=test=" + peer,
                                    "--election-timeout=250",
                                    "--heartbeat-interval=25"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder_.path() + "/log";
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(fd, STDOUT_FILENO);
  ::dup2(fd, STDERR_FILENO);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

bool EtcdProcess::wait_until_ready() {
  store::EtcdOptions options;
  options.endpoints = {{.host = "127.0.0.1", .port = port_}};
  const auto coordinator = store::EtcdCoordinator::make(options);
  for (const Nanos deadline = monotonic_now() + kStartDeadline; monotonic_now() < deadline;) {
    if ((*coordinator)->get("ready")) return true;
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
      pid_ = -1;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // between attempts to connect
  }
  return false;
}

void EtcdProcess::kill() noexcept {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string EtcdProcess::log_end() const {
  std::ifstream file(folder_.path() + "/log");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.size() <= 2000 ? text : text.substr(text.size() - 2000);
}

}  // namespace sluice::test
