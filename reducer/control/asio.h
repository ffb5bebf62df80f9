// The one place of this room that includes Boost.Asio. 1.74's awaitable.hpp uses std::exchange without
// including <utility>, and does not recognise coroutines under clang 14; reactor-style calls are all that is
// used here, so only the first matters.
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
