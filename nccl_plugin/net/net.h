// NCCL's point-to-point network, independent of the ABI version; abi/ adapts it. One sender, one receiver,
// and several streams between them, each over TCP or a queue pair (protocol.md section 13).
//
// Threads. NCCL calls listen, connect, accept and close from a service thread, and isend, irecv and test from
// a progress thread, never two at a time on one comm. Different comms are independent. The comm has no
// thread; test() drives it. No call blocks: close() passes unsent data to the StreamDrainer. The exception is
// close() of a sender whose streams are all queue pairs: it waits until the data is delivered, one second at
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

// Opens a port on the device's address. Writes the port, the address and a secret for the peer into `handle`.
[[nodiscard]] Status listen(int device, Handle handle, Listener** listener);
// NCCL repeats both calls with the same arguments until they fail or *comm is not null. The state of a
// pending connect is found through the last bytes of the handle, because NCCL passes the same memory each
// time.
[[nodiscard]] Status connect(int device, Handle handle, SendComm** comm);
[[nodiscard]] Status accept(Listener& listener, RecvComm** comm);

// Set *request, or leave it null when abi::kMaxRequests are open or nothing can be sent to the peer now; NCCL
// then tries again. The buffers belong to the transport until test() reports done. Messages may have 0 bytes.
[[nodiscard]] Status isend(SendComm& comm, const std::byte* data, size_t bytes, int tag,
                           Request** request) noexcept;
[[nodiscard]] Status irecv(RecvComm& comm, std::byte* data, size_t bytes, int tag,
                           Request** request) noexcept;

// Sets *done, and *bytes (may be null) to the bytes sent or received. The request ends when it is done. An
// error ends the comm: kReset, kTimeout, or the code of a protocol error of the peer. All requests of the
// comm then return the same error.
[[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

// Open requests are dropped; the peer sees the connection close.
void close(SendComm* comm) noexcept;
void close(RecvComm* comm) noexcept;
void close(Listener* listener) noexcept;

}  // namespace sluice::nccl::net
