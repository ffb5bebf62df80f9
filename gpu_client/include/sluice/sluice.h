/* Sluice client library, C API: collectives on host memory through a pool of reducers. The ABI is stable.
 *
 * A session is a group of ranks that reduce together. All ranks create the session with the same id, number
 * of ranks and reducers, issue the same operations in the same order, and close the session. Results are
 * bit-identical on all ranks and in every run (docs/reference/protocol.md, section 7).
 *
 * Typical use:
 *
 *   sluice_options options;
 *   sluice_options_init(&options);
 *   options.reducers = "10.0.0.2,10.0.0.3";
 *   memcpy(options.session_id, id, 16);
 *   options.rank = rank;
 *   options.ranks = ranks;
 *   sluice_session* session;
 *   if (sluice_session_create(&options, &session, error, sizeof error) != SLUICE_OK) ...
 *   sluice_allreduce(session, gradients, gradients, count, SLUICE_F32, SLUICE_SUM);
 *   sluice_session_close(session);
 *
 * Threads. Any thread may call any function, except that no other call on a session may be active during or
 * follow sluice_session_close. Concurrent calls on one session are serialized; the caller must ensure that
 * all ranks issue operations in the same order. With progress_threads = 0 a session makes progress only while
 * a thread is in sluice_test, sluice_wait or sluice_progress. In addition, the process's heartbeat thread
 * makes progress about once per heartbeat while operations are open, so that frames in transmission do not
 * stall.
 *
 * Buffers. The library accesses the buffers of an open operation at any time, also between calls.
 *
 * fork(). A session belongs to the process that created it. In a child, all functions return SLUICE_CLOSED
 * for the session at once, and sluice_session_close does nothing and returns SLUICE_OK. A child may create
 * its own sessions.
 *
 * Errors. Functions return a sluice_status; SLUICE_OK is 0. A failed session stays failed: all open and later
 * operations return the same status, and sluice_session_error returns the reason as text. No function calls
 * abort() or exit(), installs a signal handler, or prints. */
#ifndef SLUICE_SLUICE_H_
#define SLUICE_SLUICE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_status {
  SLUICE_OK = 0,
  /* Too many operations are open; complete one with sluice_test or sluice_wait, then retry. */
  SLUICE_AGAIN = 1,
  /* A null pointer, unknown dtype or op, or invalid count or option; nothing was done. */
  SLUICE_INVALID_ARGUMENT = 2,
  /* This library, machine or session does not support the call. */
  SLUICE_UNSUPPORTED = 3,
  /* A reducer or the join vote refused the session: wrong token, memory limit, rank already joined, reducer
   * draining, or no common protocol version. */
  SLUICE_REFUSED = 4,
  /* A deadline expired: connect, join, wait, or op_timeout_ms. */
  SLUICE_TIMEOUT = 5,
  /* The ranks disagree on their number, reducers or window, or on an operation's kind, dtype, op, count or
   * root. */
  SLUICE_MISMATCH = 6,
  /* A rank or a reducer was lost, or another rank aborted the session. */
  SLUICE_LOST = 7,
  /* This process closed or aborted the session, or a rank left; or it belongs to the parent process. */
  SLUICE_CLOSED = 8,
  /* A peer violated the protocol, or data was corrupted in transit. */
  SLUICE_PROTOCOL = 9,
  /* The operating system returned an error: memory, sockets, files. */
  SLUICE_SYSTEM = 10,
  /* The library has a bug. */
  SLUICE_INTERNAL = 11
} sluice_status;

/* Element types. The values are those on the wire. F8E4M3 is the variant without infinities ("e4m3fn").
 *
 * An element of MXFP8 or INT8_BLOCK is a block of 256 f32 values in 264 bytes, which sluice_encode_blocks
 * makes; counts are counts of blocks. Only SLUICE_SUM and SLUICE_AVG apply to them. Operations of these types
 * return SLUICE_UNSUPPORTED if a reducer of the session is of a release without them. */
typedef enum sluice_dtype {
  SLUICE_I8 = 0,
  SLUICE_U8 = 1,
  SLUICE_I32 = 2,
  SLUICE_U32 = 3,
  SLUICE_I64 = 4,
  SLUICE_U64 = 5,
  SLUICE_F16 = 6,
  SLUICE_F32 = 7,
  SLUICE_F64 = 8,
  SLUICE_BF16 = 9,
  SLUICE_F8E4M3 = 10,
  SLUICE_F8E5M2 = 11,
  SLUICE_MXFP8 = 12,
  SLUICE_INT8_BLOCK = 13
} sluice_dtype;

/* Operators. Section 7 of docs/reference/protocol.md defines rounding, NaN, overflow and integer averages.
 * 8-bit and 16-bit floats are added in f32 and rounded once. */
typedef enum sluice_op {
  SLUICE_SUM = 0,
  SLUICE_PROD = 1,
  SLUICE_MIN = 2,
  SLUICE_MAX = 3,
  SLUICE_AVG = 4
} sluice_op;

typedef struct sluice_session sluice_session;

/* Identifies an open operation of one session; never 0. Valid until sluice_test or sluice_wait has reported
 * the end of the operation. */
typedef uint64_t sluice_request;

/* Options of a session. Initialize with sluice_options_init, then set the fields that differ.
 * sluice_session_create copies all strings.
 *
 * Later versions append fields. A program compiled against this header works with later libraries. It works
 * with earlier libraries if it leaves the fields unset that they do not know. */
typedef struct sluice_options {
  /* Size of the struct in the caller's version; set by sluice_options_init. */
  size_t struct_size;
  /* The reducers in the same order on all ranks, for example "host:port,host:port*2,[::1]:7470". The default
   * port is 7470; "*2" sets the weight, by default 1. "@FILE" reads a file with one reducer per line. Rank 0
   * reads the file again about 1 s after a change, see sluice_session_set_reducers. "none": the ranks reduce
   * by themselves (docs/guides/python-and-c.md). NULL: the variable SLUICE_REDUCERS, otherwise the platform's
   * environment (docs/guides/deploy-platforms.md), which may query the DNS for up to
   * SLUICE_DISCOVERY_TIMEOUT. If there are none, and no rendezvous, all ranks must run on this host; they use
   * shared memory. */
  const char* reducers;
  /* Equal on all ranks and unique among the sessions of the pool; not all zero. */
  uint8_t session_id[16];
  uint32_t rank;  /* 0..ranks-1, unique */
  uint32_t ranks; /* number of ranks, at least 1 */
  /* The job for which the token is valid; NULL: SLUICE_JOB, otherwise "default". */
  const char* job;
  /* A file with the pool key (sluice keygen), or a file with the job's token (sluice keygen --job). Both
   * NULL: SLUICE_KEY_FILE or SLUICE_TOKEN_FILE. If one is set, both variables are ignored; an empty one means
   * no authentication. */
  const char* key_file;
  const char* token_file;
  /* Lane connections per reducer, at most the number that the reducer offers; 0 (default): that number. */
  uint32_t lanes;
  uint32_t window_bytes; /* bytes in flight per reducer; default 2 MiB */
  /* The largest chunk in bytes, a multiple of 64; 0 (default): 16 KiB to 128 KiB, by ranks and lanes. */
  uint32_t slot_bytes;
  uint32_t progress_threads;   /* 1 (default): a thread of the library makes progress; 0: the caller does */
  uint32_t payload_crc;        /* 1 (default): a CRC32C protects every contribution; 0: none */
  uint32_t connect_timeout_ms; /* time to connect to all reducers; default 10 s */
  uint32_t join_timeout_ms;    /* time for all ranks to join; default 60 s */
  uint32_t op_timeout_ms;      /* time limit of an operation; 0 (default): none, late ranks are no error */
  uint32_t linger_ms;          /* maximum time that sluice_session_close waits; default 5 s */
  /* Local address of all connections; NULL: chosen by the route. */
  const char* interface_address;
  /* 1 (default): keeps each result until no other rank can miss it, so that the session recovers from broken
   * connections and from the loss of reducers. 0: receives results directly into the caller's buffer; the
   * first loss ends the session. Equal on all ranks. */
  uint32_t keep_results;
  /* Time to reopen a broken connection before its reducer counts as lost; default 2 s. */
  uint32_t resume_timeout_ms;
  /* The tenant to which reducers charge shares and memory if their operator configured limits. Equal on all
   * ranks. NULL: SLUICE_TENANT, otherwise the job. */
  const char* tenant;
  /* host[:port] of rank 0, where the ranks meet without reducers: its co-located reducer listens there. Equal
   * on all ranks; the sessions of a process may share it. NULL: SLUICE_RENDEZVOUS, otherwise MASTER_ADDR.
   * Empty: none, so that without reducers all ranks must run on this host. */
  const char* rendezvous;
  /* TLS (docs/guides/secure.md): "off", "on" or "require"; NULL: SLUICE_TLS, otherwise off. Then files in PEM
   * form: the authorities that may sign a reducer's certificate, and this client's certificate and key. NULL:
   * SLUICE_TLS_CA, SLUICE_TLS_CERT, SLUICE_TLS_KEY; empty: none. If tls_cert or tls_key is set, both
   * variables are ignored. */
  const char* tls;
  const char* tls_ca;
  const char* tls_cert;
  const char* tls_key;
} sluice_options;

/* Counters of a session since its creation, of this rank. */
typedef struct sluice_stats {
  /* Set by the caller to sizeof(sluice_stats). No more bytes than that are written. */
  size_t struct_size;
  uint64_t operations;        /* operations that ended with SLUICE_OK */
  uint64_t payload_bytes_out; /* payload of contributions */
  uint64_t payload_bytes_in;  /* payload of results */
  uint64_t wire_bytes_out;    /* with headers and extensions; lane connections only */
  uint64_t wire_bytes_in;
  uint64_t send_calls; /* system calls; 0 over RDMA */
  uint64_t receive_calls;
  uint32_t reducers; /* reducers in the list at creation; 0 if all ranks share one host */
  uint32_t lanes;    /* established lane connections */
  /* The oldest unfinished chunk: the number of ranks that it waits for, the first (0xffffffff: none), and its
   * time. Of other hosts whose ranks share them, hosts count, named by their first ranks. */
  uint32_t missing_ranks;
  uint32_t missing_rank;
  uint32_t waited_ms;
  /* Recovery. A stall of recovery lasts from the first sign of a loss until operations continue. */
  uint64_t connections_resumed;  /* connections that broke and were reopened */
  uint64_t view_changes;         /* changes of the reducers in use: lost, drained or added */
  uint64_t payload_bytes_resent; /* included in payload_bytes_out */
  uint64_t stalled_us;           /* sum of all stalls of recovery */
  /* The longest time in which an operation was open and its oldest chunk without a result stayed the same,
   * for any reason: a lost or frozen reducer, a broken connection, a late rank. A stall in progress counts up
   * to now. */
  uint64_t longest_stall_us;
  uint32_t stalls[5]; /* stalls of recovery: shorter than 10 ms, 100 ms, 1 s, 10 s, and longer ones */
  /* Reducers that the session left because of a failure. Counts each loss that this rank observed itself, as
   * a failed connection or missing heartbeats. Does not count drained reducers, reducers removed from the
   * list, or losses that only other ranks observed. */
  uint32_t reducers_lost;
  /* Payload bytes that the CPU copied between the caller's buffers and the network: results with
   * keep_results, and over RDMA all payload in memory that is not registered. */
  uint64_t payload_bytes_copied;
  uint32_t rdma_lanes;       /* lane connections that use RDMA */
  uint64_t rdma_work_posted; /* RDMA work requests */
  uint64_t rdma_doorbells;   /* calls that posted them */
  uint64_t rdma_completions; /* their completions */
} sluice_stats;

/* Returns the library's version, for example "0.1.0". */
SLUICE_API const char* sluice_version(void);
/* Returns a short name, for example "mismatch", also for unknown values. Never NULL. */
SLUICE_API const char* sluice_status_string(sluice_status status);

/* Sets the defaults, overridden by the variables of docs/reference/configuration.md. `size` is the size of
 * the caller's struct; no bytes beyond it are written, and fields unknown to this library are set to zero.
 * For bindings of other languages; C and C++ programs call sluice_options_init. */
SLUICE_API void sluice_options_init_sized(sluice_options* options, size_t size);

/* The same with the size of the struct in this header. Static, so that libraries in one process that were
 * compiled against different versions each keep their own. */
static inline void sluice_options_init(sluice_options* options) {
  sluice_options_init_sized(options, sizeof *options);
}

/* Checks all that sluice_session_create reads before it connects: options, variables and files. Returns what
 * that would return, and its `error`. A rank that calls it can tell the others why it will not come. */
SLUICE_API sluice_status sluice_options_check(const sluice_options* options, char* error, size_t error_size);

/* Connects to all reducers, joins the session, and waits until all ranks have joined. Collective: succeeds or
 * fails on all ranks alike.
 * On success *session is owned by the caller until sluice_session_close. On failure *session is NULL and
 * `error` contains the reason as one line, terminated within error_size bytes. `error` may be NULL.
 * Blocks for at most connect_timeout_ms + join_timeout_ms + 5 s for the vote, and after a failure up to 2 s
 * to tell the other ranks; plus the host's resolver when names are looked up. With co-located reducers and
 * SLUICE_HOSTS=off the first sum counts three times. */
SLUICE_API sluice_status sluice_session_create(const sluice_options* options, sluice_session** session,
                                               char* error, size_t error_size);

/* Starts the reduction of `count` elements of `send` over all ranks into `recv` on all ranks, and returns
 * without waiting. *request is then valid for sluice_test and sluice_wait.
 *
 * `send` and `recv` may be the same buffer but must not overlap otherwise. Both must stay valid, and `send`
 * unchanged, until the request has ended. They are host memory, or memory registered with
 * sluice_memory_register_device. `count` may be 0. Returns SLUICE_AGAIN if 1024 operations are open. */
SLUICE_API sluice_status sluice_allreduce_async(sluice_session* session, const void* send, void* recv,
                                                size_t count, sluice_dtype dtype, sluice_op op,
                                                sluice_request* request);

/* Other collectives. What sluice_allreduce_async says of its arguments, order and errors holds for them too,
 * but no buffer may be in memory registered with sluice_memory_register_device (SLUICE_UNSUPPORTED). Reducers
 * of older versions end the session at the first of these calls.
 *
 * Reduces `send`, which has one part for each rank in rank order, over all ranks. `recv` receives this rank's
 * part, and may be that part of `send`. `count` is the number of elements of each part. With `counts`, an
 * array of one number per rank, counts[r] is that of rank r and `count` is ignored; equal on all ranks. */
SLUICE_API sluice_status sluice_reduce_scatter_async(sluice_session* session, const void* send, void* recv,
                                                     size_t count, const size_t* counts, sluice_dtype dtype,
                                                     sluice_op op, sluice_request* request);
/* Copies every rank's `send` into its part of `recv` on all ranks. `send` may be this rank's part of `recv`.
 * `count` and `counts` are as in sluice_reduce_scatter_async. */
SLUICE_API sluice_status sluice_all_gather_async(sluice_session* session, const void* send, void* recv,
                                                 size_t count, const size_t* counts, sluice_dtype dtype,
                                                 sluice_request* request);
/* Reduces `count` elements of `send` over all ranks into `recv` on rank `root`. Other ranks' `recv` is
 * ignored and may be NULL. */
SLUICE_API sluice_status sluice_reduce_async(sluice_session* session, const void* send, void* recv,
                                             size_t count, sluice_dtype dtype, sluice_op op, uint32_t root,
                                             sluice_request* request);
/* Copies `count` elements of rank `root`'s `buffer` into `buffer` on all other ranks. */
SLUICE_API sluice_status sluice_broadcast_async(sluice_session* session, void* buffer, size_t count,
                                                sluice_dtype dtype, uint32_t root, sluice_request* request);

/* Registers `size` bytes for RDMA. Network cards then access operations' buffers within the range in place;
 * otherwise the CPU copies their payload. Has no effect without RDMA.
 *
 * Registration takes milliseconds, so register a buffer once and not for each operation. It locks the pages,
 * within the limit of locked memory (ulimit -l). The pages must be writable. They must stay mapped until the
 * range is unregistered or the session closed. On kernels before 5.12 children of fork() must not access
 * them. Ranges may overlap, and a range may be registered several times. Any thread.
 *
 * Returns SLUICE_SYSTEM if a card or the limit of locked memory refuses; operations then work as without
 * registration. `error` is as in sluice_session_create. */
SLUICE_API sluice_status sluice_memory_register(sluice_session* session, void* bytes, size_t size,
                                                char* error, size_t error_size);
/* Registers GPU memory for RDMA, which then only network cards access (GPUDirect). Experimental: the variable
 * SLUICE_GDR=1 must be set when the session is created.
 *
 * `bytes` is the GPU's pointer. `dmabuf` >= 0 is the descriptor of a dmabuf (cuMemGetHandleForAddressRange)
 * that contains the bytes at `offset`; it remains the caller's and is needed only during the call. `dmabuf` <
 * 0: the card's driver translates the pointer, which requires nvidia_peermem.
 *
 * A buffer of an operation must lie entirely within one registered range or entirely outside of all ranges;
 * otherwise the operation returns SLUICE_INVALID_ARGUMENT. `send` and `recv` may differ in this. The caller
 * must ensure that GPU work on a buffer ends before the operation starts, and starts again after its end.
 *
 * Operations on such memory have no payload checksum on this rank. The session must not keep results
 * (keep_results = 0), so it does not recover from losses.
 *
 * Returns SLUICE_UNSUPPORTED if SLUICE_GDR is not set, if results are kept, if a lane does not use RDMA or
 * has more than 64 slots, or if libibverbs is too old for dmabufs. Returns SLUICE_SYSTEM if a card refuses;
 * the memory then must not be used for operations. */
SLUICE_API sluice_status sluice_memory_register_device(sluice_session* session, void* bytes, size_t size,
                                                       int dmabuf, uint64_t offset, char* error,
                                                       size_t error_size);
/* Reverts one registration of either kind, of exactly this range. No operation in it may be open. Returns
 * SLUICE_INVALID_ARGUMENT if the range is not registered. */
SLUICE_API sluice_status sluice_memory_unregister(sluice_session* session, void* bytes, size_t size);

/* Checks an operation without blocking. If it has ended, sets *done to 1, returns the operation's status, and
 * invalidates the request. Otherwise sets *done to 0 and returns SLUICE_OK. */
SLUICE_API sluice_status sluice_test(sluice_session* session, sluice_request request, int* done);
/* Waits until an operation has ended, returns its status, and invalidates the request. Waits for at most
 * timeout_ms; a negative value means no limit. Returns SLUICE_TIMEOUT if the operation is still open; the
 * request then stays valid.
 * An operation that exceeded op_timeout_ms, on this or another rank, also ends with SLUICE_TIMEOUT. A
 * following sluice_test tells the cases apart: SLUICE_OK with *done = 0: the operation is open; *done = 1: it
 * has ended in the meantime; SLUICE_INVALID_ARGUMENT: sluice_wait has reported its end. */
SLUICE_API sluice_status sluice_wait(sluice_session* session, sluice_request request, int timeout_ms);
/* Reduces and waits for the result: sluice_allreduce_async, then sluice_wait without a limit. */
SLUICE_API sluice_status sluice_allreduce(sluice_session* session, const void* send, void* recv, size_t count,
                                          sluice_dtype dtype, sluice_op op);

/* Convert between `count` floats and blocks of `dtype` (SLUICE_MXFP8 or SLUICE_INT8_BLOCK). `blocks` has
 * sluice_block_count(count) blocks of 264 bytes; the last one is filled up with zeros. Values are rounded to
 * nearest, ties to even; docs/reference/protocol.md, section 6, defines every bit. The buffers may have any
 * alignment and must not overlap. Return SLUICE_INVALID_ARGUMENT for other types and null pointers. */
SLUICE_API size_t sluice_block_count(size_t count);
SLUICE_API sluice_status sluice_encode_blocks(sluice_dtype dtype, const float* values, size_t count,
                                              void* blocks);
SLUICE_API sluice_status sluice_decode_blocks(sluice_dtype dtype, const void* blocks, size_t count,
                                              float* values);

/* Makes progress once, for sessions with progress_threads = 0. Does not block. Returns the session's
 * status. */
SLUICE_API sluice_status sluice_progress(sluice_session* session);

/* Returns SLUICE_OK, or the status with which the session ended. Sets `text` to the reason, as `error` in
 * sluice_session_create. */
SLUICE_API sluice_status sluice_session_error(sluice_session* session, char* text, size_t text_size);
/* Sets `rank` to the rank that ended the session: that was lost, left while others went on (SLUICE_CLOSED),
 * aborted, failed, called another operation or was waited for too long. SLUICE_NO_RANK: none is known, as
 * when a reducer was lost, or the session runs, or belongs to the parent process. Any thread. Since the
 * release after 0.1.0. Returns SLUICE_INVALID_ARGUMENT for a null pointer, otherwise SLUICE_OK. */
#define SLUICE_NO_RANK 0xffffffffu
SLUICE_API sluice_status sluice_session_ended_by(sluice_session* session, uint32_t* rank);
/* Returns the counters so far. Fields unknown to this library are set to zero. Returns
 * SLUICE_INVALID_ARGUMENT if stats->struct_size is not set. */
SLUICE_API sluice_status sluice_session_stats(sluice_session* session, sluice_stats* stats);

/* Replaces the list of reducers of a running session. `reducers` has the form of sluice_options.reducers;
 * "@FILE" also replaces the watched file. NULL reads the watched file now, even if it has not changed.
 *
 * Returns when the list is accepted. The change happens later, between two chunks, and interrupts no
 * operation. All ranks join the new reducers; a reducer that is unreachable or refuses (memory, draining) is
 * skipped and tried again. Reducers that are no longer in the list are left as if they drained, once at least
 * one listed reducer serves the session. A reducer in use keeps its weight.
 *
 * Only the list of rank 0 takes effect, for all ranks. Other ranks validate theirs, so either all ranks or
 * rank 0 alone may call the function. Returns SLUICE_INVALID_ARGUMENT or SLUICE_SYSTEM if the list or file is
 * malformed or unreadable; `error` (as in sluice_session_create) contains the position, and the list stays
 * unchanged. Returns SLUICE_UNSUPPORTED with keep_results = 0. */
SLUICE_API sluice_status sluice_session_set_reducers(sluice_session* session, const char* reducers,
                                                     char* error, size_t error_size);

/* Writes the dedicated reducers that serve the session now, in the form of sluice_options.reducers, for
 * another session of the same ranks: without those that are lost or drain. "none" if none is left. While the
 * view changes, ranks may read different lists, so one rank tells the others its list. Returns
 * SLUICE_INVALID_ARGUMENT if `text_size` is too small; 64 KiB suffice. */
SLUICE_API sluice_status sluice_session_reducers(sluice_session* session, char* text, size_t text_size);

/* Ends the session at once on all ranks. Open and later operations return SLUICE_CLOSED on this rank and
 * SLUICE_LOST on the others; sluice_session_error returns `reason`, of which the first 200 bytes count.
 * `reason` may be NULL. Does not wait for the network, and has no effect on a session that has ended. Any
 * thread may call it, also while others wait. The session must still be closed. Without it, the other ranks
 * of a process that stops would wait for operations that it never issues. */
SLUICE_API sluice_status sluice_session_abort(sluice_session* session, const char* reason);

/* Leaves the session and frees it. Waits for open operations and until no other rank needs this one, together
 * for at most linger_ms; then cancels open operations and returns SLUICE_TIMEOUT. Otherwise returns SLUICE_OK
 * or the status with which the session ended before. `session` may be NULL. The pointer is invalid
 * afterwards, whatever the status. */
SLUICE_API sluice_status sluice_session_close(sluice_session* session);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_SLUICE_H_ */
