// The reducer's status for any number of clients: it is asked once for all that want it at a time, and not
// again while the answer is young. Of the server's thread but for what ask() calls back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/units.h"
#include "reducer/admin/beast.h"
#include "reducer/admin/http_server.h"

namespace sluice::reducer::admin {

class StatusFeed {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Taker = std::function<void(const Text&)>;  // null: the reducer did not answer in time

  StatusFeed(asio::io_context& io, const HttpOptions& options, AskStatus ask)
      : io_(io),
        timer_(io),
        timeout_(options.status_timeout),
        age_(options.status_age),
        ask_(std::move(ask)) {}

  // Calls back from here, or later on the same thread; always once.
  void get(Taker taker);

 private:
  void told(uint64_t question, std::string text);
  void give(const Text& text);

  asio::io_context& io_;
  asio::steady_timer timer_;
  const Nanos timeout_;
  const Nanos age_;
  const AskStatus ask_;
  std::vector<Taker> waiting_;
  uint64_t question_ = 0;  // its number; an answer to one before is too late
  bool asked_ = false;
  Text text_;
  Nanos told_at_ = 0;
};

}  // namespace sluice::reducer::admin
