// The only header of reducer/admin that includes Boost.Beast and Asio.
//
// The executor is a concrete type, and no composed operation is used: both halve the time to compile.
// Asio 1.74 uses std::exchange without including <utility>, so that header must come first.
#pragma once

#include <utility>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>

namespace sluice::reducer::admin {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Executor = asio::io_context::executor_type;
using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, Executor>;
using StreamSocket = asio::basic_stream_socket<asio::ip::tcp, Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;
}  // namespace sluice::reducer::admin
