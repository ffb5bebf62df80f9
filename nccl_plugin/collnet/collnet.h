// NCCL's CollNet over the reducers, independent of the ABI version; abi/ adapts it. A Comm is one head of one
// communicator on this node: a session of the engine with one rank per node.
//
// Threads. NCCL calls listen, connect, register, deregister and close from its service thread, and iallreduce
// and test from its progress thread, which may run at the same time as registrations. Different Comms may be
// used by different threads.
#pragma once

#include <cstddef>
#include <span>

#include "core/status.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::collnet {

using Handle = std::span<std::byte, abi::kHandleBytes>;

class Listener;
class Comm;
class Request;

// Opens a port for the other nodes. `communicator` is NCCL's id of it, 0 before v11: the heads of one have
// the same. Does not fail for network errors, because an error here would leave the other nodes waiting;
// connect() reports them on all nodes.
[[nodiscard]] Status listen(int device, Handle handle, uint64_t communicator, Listener** listener) noexcept;

// Connects all nodes with these handles to all reducers. `handles` must have the same order on all nodes; it
// is the order of summation. Succeeds on all nodes or fails on all with one reason. Blocks for
// SLUICE_JOIN_TIMEOUT at most while nodes are missing, and for about twice SLUICE_CONNECT_TIMEOUT for the
// rest.
[[nodiscard]] Status connect(std::span<void* const> handles, Listener& listener, Comm** comm) noexcept;

// True when allreduces of this type and operator are supported. False for unknown values.
[[nodiscard]] bool supports(int data_type, int op) noexcept;

// Adds a reference to [data, data + bytes). The same range may be registered several times. Requests may use
// unregistered memory; over RDMA, requests in registered memory are not copied.
[[nodiscard]] Status register_memory(Comm& comm, void* data, size_t bytes, void** handle) noexcept;
// Removes a reference. If open requests use the range, NCCL is aborting and frees the memory next: the
// session then ends here, and nothing accesses the range after this call.
void deregister_memory(Comm& comm, void* handle) noexcept;

// Sets *request, or leaves it null when there are 64 open requests, or when the open requests and this one
// exceed SLUICE_WINDOW per reducer; NCCL then tries again. A single request is always accepted. Until test()
// reports done, the buffers must stay valid and unchanged by the caller. send == receive is allowed.
[[nodiscard]] Status iallreduce(Comm& comm, const void* send, void* receive, size_t count, int data_type,
                                int op, Request** request) noexcept;
// An error means that the session has ended. The reason is logged once; every later call returns the same
// error.
[[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

// Leaves the session, or aborts it if requests are open. Logs one line of statistics.
void close(Comm* comm) noexcept;
void close(Listener* listener) noexcept;

}  // namespace sluice::nccl::collnet
