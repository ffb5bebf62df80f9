// The only header of reducer/control that includes Boost.Asio.
//
// Asio 1.74's awaitable.hpp uses std::exchange without including <utility>, so that header must come first.
#pragma once

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>

namespace sluice::reducer {
namespace asio = boost::asio;
}  // namespace sluice::reducer
