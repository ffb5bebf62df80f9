#include "reducer/admin/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/log.h"
#include "reducer/admin/answers.h"
#include "reducer/admin/http_connection.h"
#include "reducer/admin/status_feed.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer::admin {
namespace {

constexpr int kBacklog = 128;
constexpr int kNiceness = 5;  // beside lanes that want every processor
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

class RunningServer final : public HttpServer {
 public:
  RunningServer(const HttpOptions& options, const std::string& data_host, transport::tcp::Socket listener,
                uint16_t port)
      : options_(options), answers_(options.build, data_host), port_(port), acceptor_(io_), pause_(io_) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size);
    acceptor_.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                     listener.release());
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    status_.reset();  // its timer is io_'s
  }

  void start(AskStatus ask) override {
    status_.emplace(io_, options_, std::move(ask));
    accept();
    thread_ = std::thread([this] { run(); });
  }
  uint16_t port() const noexcept override { return port_; }

 private:
  void run() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);  // of this thread alone
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {  // out of memory for one client
        log::error(std::string("HTTP: ") + e.what());
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {  // out of descriptors, mostly: at once there would be no other outcome
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const boost::system::error_code& ended) {
          if (!ended) accept();
        });
        return;
      }
      // First: whatever is thrown here, there is a next.
      accept();
      serve(std::move(socket));
    });
  }

  // Where there are as many as may be, who has owed a request longest goes, or else who has been answered
  // longest: a probe gets through whoever holds connections open.
  void serve(asio::ip::tcp::socket socket) {
    if (connections_.size() >= options_.most_connections) {
      HttpConnection* const oldest = *std::ranges::min_element(
          connections_, {}, [](const HttpConnection* c) { return std::pair(!c->silent(), c->since()); });
      std::erase(connections_, oldest);
      oldest->close();
    }
    const auto made =
        std::make_shared<HttpConnection>(std::move(socket), options_, answers_, *status_,
                                         [this](HttpConnection& gone) { std::erase(connections_, &gone); });
    connections_.push_back(made.get());
    made->start();
  }

  const HttpOptions options_;
  const Answers answers_;
  const uint16_t port_;
  std::vector<HttpConnection*>
      connections_;  // each owned by what it waits for; before io_, which lets go of them
  std::optional<StatusFeed> status_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpOptions& options,
                                                     const std::string& data_host) {
  auto listener =
      transport::tcp::listen_on(options.host, options.port,
                                {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}}, kBacklog);
  if (!listener) return tl::unexpected(std::move(listener.error()));
  const auto port = transport::tcp::bound_port(listener->fd());
  if (!port) return tl::unexpected(port.error());
  return std::make_unique<RunningServer>(options, data_host, std::move(*listener), *port);
}

}  // namespace sluice::reducer::admin
