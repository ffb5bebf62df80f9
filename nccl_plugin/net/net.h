// NCCL's point-to-point net, free of ABI versions: the files of abi/ translate. One sender, one receiver,
// several streams between them, each over TCP or a queue pair. PROTOCOL.md section 13 is the exchange.
//
// Threads: NCCL calls listen, connect, accept and close from a service thread and isend, irecv and test from
// a progress thread, never two at a time on one comm. Different comms are independent. No thread of ours:
// test() drives the comm, and nothing here blocks: close() hands what is unsent to the closer (closer.h) and
// returns. Save that of a sender over queue pairs: it waits until what was sent has arrived, a second at
// most.
#pragma once

#include <cstddef>
#include <span>

#include "core/status.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::net {

using Handle = std::span<std::byte, abi::kHandleBytes>;

class Listener;
class SendComm;
class RecvComm;
class Request;

// Opens a port on the device's address and writes where it is, and a secret that a peer must know, into
// `handle`.
[[nodiscard]] Status listen(int device, Handle handle, Listener** listener);
// Both are called again with the same arguments until they fail or *comm is not null. State of a connect
// under way is kept through the handle's tail: NCCL passes the same memory each time.
[[nodiscard]] Status connect(int device, Handle handle, SendComm** comm);
[[nodiscard]] Status accept(Listener& listener, RecvComm** comm);

// *request stays null when abi::kMaxRequests are open, or nothing can be said to the peer now: NCCL tries
// again. Buffers are the transport's until test() says done. `bytes` 0 is a message like any other.
[[nodiscard]] Status isend(SendComm& comm, const std::byte* data, size_t bytes, int tag,
                           Request** request) noexcept;
[[nodiscard]] Status irecv(RecvComm& comm, std::byte* data, size_t bytes, int tag,
                           Request** request) noexcept;

// kOk and *done; *bytes (may be null) is what was sent or received. A done request is over. An error is the
// comm's end: kReset, kTimeout, or a word for what the peer did wrong; every request of the comm tells the
// same.
[[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

// With requests open: they are dropped; the peer sees the connection end.
void close(SendComm* comm) noexcept;
void close(RecvComm* comm) noexcept;
void close(Listener* listener) noexcept;

}  // namespace sluice::nccl::net
