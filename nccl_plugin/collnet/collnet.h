// NCCL's CollNet over the reducers, free of ABI versions: the files of abi/ translate. A Comm is one head of
// one communicator on this node: a session of the engine with as many ranks as the communicator has nodes.
//
// Threads: listen, connect, registration and close from NCCL's service thread; iallreduce and test from its
// progress thread, at the same time as registration. Distinct Comms are used at the same time by different
// threads.
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

// Never fails for a reason of the network's: an error here would leave the other nodes waiting. What went
// wrong is told by connect().
[[nodiscard]] Status listen(int device, Handle handle, Listener** listener) noexcept;

// Joins all nodes whose handles these are, over all reducers. Blocks, at most SLUICE_JOIN_TIMEOUT for
// nodes that are late and about twice SLUICE_CONNECT_TIMEOUT for the rest. The nodes agree among themselves:
// it succeeds on all or fails on all, with one reason. `handles` in the same order on all nodes: it is the
// order of summing.
[[nodiscard]] Status connect(std::span<void* const> handles, Listener& listener, Comm** comm) noexcept;

// Whether allreduces of this type and operator are taken. Types and operators that are not known: no.
[[nodiscard]] bool supports(int data_type, int op) noexcept;

// A reference to [data, data + bytes). Registering the same range again is counted; any range may be used
// unregistered, but see deregister_memory. Over RDMA requests in it are not copied.
[[nodiscard]] Status register_memory(Comm& comm, void* data, size_t bytes, void** handle) noexcept;
// With requests open that touch the range: NCCL is tearing down after an abort and frees the memory next, so
// the session is ended here and nothing of ours touches it any more when this returns.
void deregister_memory(Comm& comm, void* handle) noexcept;

// *request stays null when the open ones and this one are more bytes than SLUICE_WINDOW for each reducer, or
// 64 requests: NCCL tries again. One alone is always taken. Buffers are ours until test() says done; send
// == receive is allowed.
[[nodiscard]] Status iallreduce(Comm& comm, const void* send, void* receive, size_t count, int data_type,
                                int op, Request** request) noexcept;
// An error is the session's end, with its reason in the log once; every later call tells it again.
[[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

// With requests open: ends the session at once. Otherwise leaves in order. Says one line of what was done.
void close(Comm* comm) noexcept;
void close(Listener* listener) noexcept;

}  // namespace sluice::nccl::collnet
