// The only header of store/coordinator that includes Boost.Beast and Asio.
//
// Asio 1.74 uses std::exchange without including <utility>, so that header must come first.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace sluice::store::etcd {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
}  // namespace sluice::store::etcd
