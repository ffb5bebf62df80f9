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
#include "reducer/admin/http_connection.h"
#include "reducer/admin/request_handler.h"
#include "reducer/admin/status_cache.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer::admin {
namespace {

constexpr int kBacklog = 128;
constexpr int kNiceness = 5;  // lanes have priority
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

class RunningServer final : public HttpServer {
 public:
  RunningServer(const HttpOptions& options, const std::string& data_host, transport::tcp::Socket listener,
                uint16_t port)
      : options_(options),
        handler_(options.build, data_host),
        port_(port),
        acceptor_(io_),
        accept_timer_(io_) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size);
    acceptor_.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                     listener.release());
    boost::system::error_code ignored;
    options_.only_local_names |= acceptor_.local_endpoint(ignored).address().is_loopback();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    status_.reset();  // its timer uses io_
  }

  void start(StatusSource source) override {
    status_.emplace(io_, options_, std::move(source));
    accept();
    thread_ = std::thread([this] { run(); });
  }
  uint16_t port() const noexcept override { return port_; }

 private:
  void run() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);  // this thread only
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {  // out of memory for one client
        log::error(std::string("HTTP server: handler failed: ") + e.what());
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, StreamSocket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {  // most likely out of file descriptors: retrying at once would spin
        accept_timer_.expires_after(kAcceptRetry);
        accept_timer_.async_wait([this](const boost::system::error_code& ended) {
          if (!ended) accept();
        });
        return;
      }
      // Re-armed first, so that an exception in serve() does not stop the server.
      accept();
      serve(std::move(socket));
    });
  }

  // At the limit, closes the connection that has owed a request longest, or else the one whose response has
  // taken longest. So a probe gets through although clients hold connections open.
  void serve(StreamSocket socket) {
    if (connections_.size() >= options_.max_connections) {
      HttpConnection* const oldest = *std::ranges::min_element(connections_, {}, [](const HttpConnection* c) {
        return std::pair(!c->is_awaiting_request(), c->since());
      });
      std::erase(connections_, oldest);
      oldest->close();
    }
    const auto connection = std::make_shared<HttpConnection>(
        std::move(socket), options_, handler_, *status_,
        [this](HttpConnection& destroyed) { std::erase(connections_, &destroyed); });
    connections_.push_back(connection.get());
    connection->start();
  }

  HttpOptions options_;  // fixed after the constructor
  const RequestHandler handler_;
  const uint16_t port_;
  // Pending handlers own the connections. Declared before io_, which destroys the handlers.
  std::vector<HttpConnection*> connections_;
  std::optional<StatusCache> status_;
  asio::io_context io_{1};
  Acceptor acceptor_;
  Timer accept_timer_;
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
