/* Sluice client: allreduce of host memory through a pool of reducers. C face, stable ABI.
 *
 * A session is one group of ranks. Every rank creates it with the same id, number of ranks and reducers,
 * issues the same operations in the same order, and closes it. Results are bit-identical on all ranks, and on
 * every run (wire/PROTOCOL.md section 7).
 *
 * Threads. Any function may be called from any thread; calls on one session from several threads are
 * serialised inside, and it is the caller's business that all ranks see the same order of operations. With
 * progress_threads = 0 a session moves while some thread is in sluice_test, sluice_wait or sluice_progress of
 * it; besides, while operations are open, the one keeper thread of the process gives it a turn about every
 * heartbeat, so that a frame which has begun does not stand still. Buffers of open operations are in use
 * between calls as well.
 *
 * fork(). A session belongs to the process that made it: in a child every function says SLUICE_CLOSED of it
 * at once, and sluice_session_close does nothing. A child makes sessions of its own.
 *
 * Errors. Functions return a sluice_status; SLUICE_OK is 0. A session that has failed stays failed: every
 * open and later operation gets the same status, sluice_session_error gives the reason in words. No function
 * calls abort(), exit(), installs a signal handler or prints. */
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
  SLUICE_AGAIN = 1, /* the table of open operations is full: test or wait for one, then try again */
  SLUICE_INVALID_ARGUMENT = 2, /* null pointer, unknown dtype or op, bad count or option; nothing was done */
  SLUICE_UNSUPPORTED = 3,
  SLUICE_REFUSED = 4, /* a reducer or the vote refused the session: token, memory limit, rank taken, draining,
                         no common version */
  SLUICE_TIMEOUT = 5, /* a deadline passed: connect, join, wait, or op_timeout_ms */
  SLUICE_MISMATCH = 6, /* ranks disagree: on n, reducers, window, or on dtype, op or count of an operation */
  SLUICE_LOST = 7,     /* a rank or a reducer was lost */
  SLUICE_CLOSED = 8, /* the session was closed, here or by a rank that left; or it is that of a process which
                        this one was forked from */
  SLUICE_PROTOCOL = 9, /* a peer broke the protocol, or data was damaged on the way */
  SLUICE_SYSTEM = 10,  /* the operating system refused: memory, sockets, files */
  SLUICE_INTERNAL = 11
} sluice_status;

/* Numbers as on the wire. */
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
  SLUICE_F8E5M2 = 11
} sluice_dtype;

typedef enum sluice_op {
  SLUICE_SUM = 0,
  SLUICE_PROD = 1,
  SLUICE_MIN = 2,
  SLUICE_MAX = 3,
  SLUICE_AVG = 4
} sluice_op;

typedef struct sluice_session sluice_session;

/* Names an operation of one session; 0 is never one. Valid until sluice_test or sluice_wait reported its end.
 */
typedef uint64_t sluice_request;

/* Fill with sluice_options_init, then set what differs. Strings are copied by sluice_session_create.
 * Later versions append fields: a program built against this header goes on working with a later library, and
 * with an earlier one as long as it leaves the fields alone that are not there. */
typedef struct sluice_options {
  size_t struct_size;   /* of the struct as the caller was compiled; set by sluice_options_init */
  const char* reducers; /* "host:port,host:port*2,[::1]:7470": same order on all ranks; port 7470 and weight 1
                           by default. Or "@FILE": one a line in a file, which rank 0 reads again about a
                           second after it has changed, see sluice_session_set_reducers. NULL: those of the
                           variable SLUICE_REDUCERS, else what the platform says (docs/discovery.md); a DNS
                           may be asked for as long as SLUICE_DISCOVERY_TIMEOUT says */
  uint8_t session_id[16]; /* same on all ranks, unlike that of any other session of the pool */
  uint32_t rank;          /* 0..ranks-1, each once */
  uint32_t ranks;
  const char* job;        /* job id that the token is for; NULL = "default" */
  const char* key_file;   /* pool key (sluice keygen), or ... */
  const char* token_file; /* ... the job's token (sluice keygen --job); NULL and NULL: no authentication */
  uint32_t lanes; /* lane connections per reducer, at most what the reducer offers; 0 = what it offers */
  uint32_t window_bytes;         /* per reducer; 2 MiB */
  uint32_t slot_bytes;           /* largest chunk; 0: 16 to 128 KiB, by ranks and lanes */
  uint32_t progress_threads;     /* 1: an own thread drives the session; 0: the caller does */
  uint32_t payload_crc;          /* 1: CRC32C on every contribution */
  uint32_t connect_timeout_ms;   /* to reach all reducers; 10 s */
  uint32_t join_timeout_ms;      /* for all ranks to arrive; 60 s */
  uint32_t op_timeout_ms;        /* 0 = none: waiting for a late rank is not an error */
  uint32_t linger_ms;            /* most that close waits; 5 s */
  const char* interface_address; /* local address to connect from; NULL = the route's */
  uint32_t keep_results; /* 1: each result is kept until no other rank can miss it, and the session outlives
                            broken connections and lost reducers; 0: results are received where they belong,
                            with no copy, and the first loss ends the session. The same on all ranks */
  uint32_t resume_timeout_ms; /* how long a broken connection is tried to be opened again before its reducer
                                 counts as lost; 2 s */
  const char* tenant; /* whose share and memory of a reducer the session counts for, where its operator set
                         some; the same on all ranks. NULL = SLUICE_TENANT, or what the job is called */
} sluice_options;

typedef struct sluice_stats {
  size_t struct_size;         /* set by the caller: sizeof(sluice_stats); no more than that is written */
  uint64_t operations;        /* ended with SLUICE_OK */
  uint64_t payload_bytes_out; /* contributions */
  uint64_t payload_bytes_in;  /* results */
  uint64_t wire_bytes_out;    /* with headers and extensions, data lanes only */
  uint64_t wire_bytes_in;
  uint64_t send_calls;
  uint64_t receive_calls;
  uint32_t reducers;      /* of the list that the session was created with */
  uint32_t lanes;         /* lane connections that stand */
  uint32_t missing_ranks; /* last told by a reducer: ranks that the oldest chunk waits for, ... */
  uint32_t missing_rank;  /* ... the first of them (0xffffffff none), ... */
  uint32_t waited_ms;     /* ... and how long it has waited */
  /* What the session has survived. */
  uint64_t connections_resumed;  /* opened again after they broke */
  uint64_t view_changes;         /* reducers lost, drained or added */
  uint64_t payload_bytes_resent; /* of payload_bytes_out */
  uint64_t stalled_us;           /* between the first word of a loss and going on, all together, ... */
  uint64_t longest_stall_us;     /* ... the longest, ... */
  uint32_t stalls[5];            /* ... and how many took less than 10 ms, 100 ms, 1 s, 10 s, or longer */
  uint32_t reducers_lost;        /* that the session left because they were lost, see below */
  /* Payload bytes copied by the processor between the caller's buffers and the network: results that have to
   * be kept, and over RDMA all that lies in memory that is not registered. */
  uint64_t payload_bytes_copied;
  uint32_t rdma_lanes;       /* of lanes, those over RDMA */
  uint64_t rdma_work_posted; /* work requests, ... */
  uint64_t rdma_doorbells;   /* ... calls that posted them, ... */
  uint64_t rdma_completions; /* ... and what came of them */
} sluice_stats;

/* sluice_stats.reducers_lost, in reducers: of view_changes, what went wrong. One counts, once, when this rank
 * could not reach it or heard nothing of it; not one that drained or that the list of reducers has no more,
 * nor one that other ranks lost while this rank's connections to it stood. One that comes back and is lost
 * again counts again. */

/* "0.1.0" */
SLUICE_API const char* sluice_version(void);
/* Short name of a status: "mismatch". Never NULL. */
SLUICE_API const char* sluice_status_string(sluice_status status);

/* Defaults, and over them the variables of docs/timeouts.md. `size` is that of the caller's struct: nothing
 * beyond it is touched, and what this library does not know of it is set to zero. */
SLUICE_API void sluice_options_init_sized(sluice_options* options, size_t size);

/* Compiled into each caller, whose struct has the size that its own header says; hence static, not merged
 * with that of another library built against another version. Other languages call the function above. */
static inline void sluice_options_init(sluice_options* options) {
  sluice_options_init_sized(options, sizeof *options);
}

/* Connects to all reducers, joins, and waits until all ranks have (collective: returns the same way on every
 * rank). On success *session is the caller's until sluice_session_close. On failure *session is NULL and
 * error (may be NULL; error_size bytes, always terminated) says why in one line. Blocks up to
 * connect_timeout_ms + join_timeout_ms + 5 s of grace for the vote; names of reducers are looked up besides,
 * as slowly as the host's resolver does. */
SLUICE_API sluice_status sluice_session_create(const sluice_options* options, sluice_session** session,
                                               char* error, size_t error_size);

/* Reduce `count` elements of `send` over all ranks into `recv` on all ranks. send == recv is allowed, other
 * overlap is not. Both stay valid, and send unchanged, until the request has ended. count may be 0. Host
 * memory, or what sluice_memory_register_device was told of. Returns without waiting; SLUICE_AGAIN when too
 * many operations are open (1024). */
SLUICE_API sluice_status sluice_allreduce_async(sluice_session* session, const void* send, void* recv,
                                                size_t count, sluice_dtype dtype, sluice_op op,
                                                sluice_request* request);

/* Bytes in which operations' buffers will lie: over RDMA the network card then reads and writes them in
 * place, where otherwise the processor copies payload at this end. Elsewhere nothing happens. To register
 * takes milliseconds, so do it once, not for each operation; the pages are locked (ulimit -l). They must be
 * writable and stay mapped until they are unregistered, before which no operation on them may be open, or the
 * session is closed; on kernels before 5.12 children of a fork() must not touch them. Ranges may overlap, and
 * the same one be registered again. Any thread. SLUICE_SYSTEM: the card, or the limit of locked memory,
 * refuses; operations work as without it. `error` as in sluice_session_create. */
SLUICE_API sluice_status sluice_memory_register(sluice_session* session, void* bytes, size_t size,
                                                char* error, size_t error_size);
/* The same of a GPU's memory, which the network card alone then reads and writes: no processor touches it.
 * Experimental: SLUICE_GDR=1 when the session is created allows it. `bytes` is the GPU's pointer. dmabuf >=
 * 0: the descriptor of a dmabuf (of cuMemGetHandleForAddressRange, say) that has these bytes at `offset`; the
 * caller's, and needed for this call only. dmabuf < 0: the card's driver knows the pointer by itself, where
 * nvidia_peermem is loaded. A buffer of an operation lies whole in one such range, or touches none
 * (SLUICE_INVALID_ARGUMENT); one of the two may, or both, and what the GPU does with them is over before the
 * operation and begins again behind it. What is lost: operations on such memory have no payload checksum at
 * this end (payload_crc), and the session survives no losses (keep_results = 0). SLUICE_UNSUPPORTED: not
 * allowed; results are kept; a lane is not over RDMA, or has more than 64 slots; or libibverbs is too old for
 * a dmabuf. SLUICE_SYSTEM: the card refuses, and operations must not be given this memory. */
SLUICE_API sluice_status sluice_memory_register_device(sluice_session* session, void* bytes, size_t size,
                                                       int dmabuf, uint64_t offset, char* error,
                                                       size_t error_size);
/* Of either kind. SLUICE_INVALID_ARGUMENT: this very range is not registered. */
SLUICE_API sluice_status sluice_memory_unregister(sluice_session* session, void* bytes, size_t size);

/* *done = 1 and the operation's status when it has ended (the request is then over), else *done = 0 and
 * SLUICE_OK. Does not block. */
SLUICE_API sluice_status sluice_test(sluice_session* session, sluice_request request, int* done);
/* Blocks until it has ended, at most timeout_ms (negative: no limit). When that was not enough,
 * SLUICE_TIMEOUT, and the request stays open. An operation that ended by op_timeout_ms, here or on another
 * rank, has the same status; sluice_test tells them apart: SLUICE_OK and *done = 0, it is open;
 * SLUICE_INVALID_ARGUMENT, it was over and sluice_wait has said so; *done = 1, it has ended since. */
SLUICE_API sluice_status sluice_wait(sluice_session* session, sluice_request request, int timeout_ms);
/* sluice_allreduce_async and sluice_wait in one. */
SLUICE_API sluice_status sluice_allreduce(sluice_session* session, const void* send, void* recv, size_t count,
                                          sluice_dtype dtype, sluice_op op);

/* One turn of progress with progress_threads = 0. Returns what sluice_session_error's status is. */
SLUICE_API sluice_status sluice_progress(sluice_session* session);

/* SLUICE_OK, or why the session ended; `text` as in sluice_session_create. */
SLUICE_API sluice_status sluice_session_error(sluice_session* session, char* text, size_t text_size);
/* Counts so far. Fields that this library does not know are set to zero. SLUICE_INVALID_ARGUMENT when
 * stats->struct_size is not set. */
SLUICE_API sluice_status sluice_session_stats(sluice_session* session, sluice_stats* stats);

/* Another list of reducers for a session that runs, in the form of sluice_options.reducers; "@FILE" is
 * watched from now on in place of the file there was. NULL: the file that is watched is read now, whether it
 * has changed or not.
 *
 * Returns once the list is taken; what it changes is done later, between two chunks, without an end to any
 * operation. Reducers that are new in it are joined by all ranks; one that can't be reached or refuses
 * (memory, draining) is left out and tried again. Those that it has no more are left as if they drained, once
 * one of the list carries the session. The weight of one in use stays what it is.
 *
 * Rank 0 acts on it for all ranks. On another rank the list is checked, and has no effect; so every rank may
 * call it, or rank 0 alone. SLUICE_INVALID_ARGUMENT and SLUICE_SYSTEM: the list or file is wrong or can't be
 * read, `error` (as in sluice_session_create) says where, and the list stays as it was. SLUICE_UNSUPPORTED:
 * the session does not outlive losses (keep_results), hence no changes either. */
SLUICE_API sluice_status sluice_session_set_reducers(sluice_session* session, const char* reducers,
                                                     char* error, size_t error_size);

/* Tells the reducers that this rank leaves, waits up to linger_ms until nobody needs it any more, and frees
 * the session. Open operations are waited for within the same time, then given up. NULL is allowed. The
 * pointer is invalid afterwards, whatever the status. */
SLUICE_API sluice_status sluice_session_close(sluice_session* session);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_SLUICE_H_ */
