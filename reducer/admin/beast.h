// The one place of this room that includes Boost.Beast, and the Asio under it. As
// reducer/control/asio.h: 1.74 uses std::exchange without including <utility>.
#pragma once

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace sluice::reducer::admin {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
}  // namespace sluice::reducer::admin
