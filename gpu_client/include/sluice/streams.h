/* Allreduce in the order of a GPU's streams, or of streams of the host where there is no GPU. C face, stable
 * ABI. sluice.h, which this extends, is read first.
 *
 * A session that has streams copies gradients out of the GPU, has them reduced, and copies the results back,
 * all of it behind what the caller's stream was given before and ahead of what it is given later:
 *
 *   sluice_session_open_streams(session, &options, error, sizeof error);
 *   produce_gradients<<<..., stream>>>(gradients);
 *   sluice_allreduce_on_stream(session, gradients, gradients, count, SLUICE_F32, SLUICE_AVG, stream, NULL);
 *   use_gradients<<<..., stream>>>(gradients);
 *
 * Nothing here waits for a stream or for the network on the caller's thread, but closing the session does. An
 * operation is cut into pieces that are copied out, reduced and copied back at the same time, through memory
 * of the host that is pinned once (staging_bytes).
 *
 * Order. All ranks issue the same operations in the same order, in the same groups, with the same options but
 * device and measure_error. Within a group, neighbours are on one stream on all ranks or on none, and in
 * memory of the GPU on all or of the host on all; where two sessions share a GPU, also those of the two in
 * one order, or the GPU may wait for ever: hence two ranks of a job in one process have a GPU each. A session
 * that has streams takes operations by this header alone: of sluice_allreduce and sluice_allreduce_async it
 * says SLUICE_UNSUPPORTED.
 *
 * Errors. What is refused on the spot (SLUICE_INVALID_ARGUMENT, SLUICE_UNSUPPORTED, SLUICE_AGAIN) has done
 * nothing, and sluice_refusal says why. When the session fails later, or the GPU does, streams go on all the
 * same: what waits for a result is let go, `recv` then holds anything, and sluice_session_error and the
 * request say so; so ask one of the two before results are used for good, as one does of NCCL. Where a copy
 * back to the GPU fails, who waits for a request hears of it, and all others by CUDA. */
#ifndef SLUICE_STREAMS_H_
#define SLUICE_STREAMS_H_

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUstream or cudaStream_t, or one of sluice_host_stream_create. NULL: on a GPU its default stream; on the
 * host no stream: `send` is ready when the call is made, and only the request tells of the end. */
typedef void* sluice_stream;

typedef enum sluice_device_kind {
  SLUICE_DEVICE_HOST = 0, /* streams are host streams, buffers host memory */
  SLUICE_DEVICE_CUDA = 1  /* buffers are of the GPU, managed, or host memory, pageable too */
} sluice_device_kind;

/* sluice_stream_options.wire_dtype beside SLUICE_BF16 and SLUICE_F16: as the elements are. */
#define SLUICE_WIRE_AS_GIVEN (-1)

/* Fill with sluice_stream_options_init, then set what differs. Grows as sluice_options does. */
typedef struct sluice_stream_options {
  size_t struct_size;     /* set by sluice_stream_options_init */
  int32_t device_kind;    /* SLUICE_DEVICE_HOST */
  int32_t device;         /* ordinal of the GPU, as the driver counts (CUDA_VISIBLE_DEVICES); -1: that of the
                             caller's current context */
  uint64_t staging_bytes; /* pinned host memory, half of it for each way; 64 MiB */
  uint32_t piece_bytes; /* most that is copied and reduced as one, on the wire; a multiple of 64 KiB, at most
                           a quarter of staging_bytes; 4 MiB */
  int32_t wire_dtype;   /* SLUICE_WIRE_AS_GIVEN. SLUICE_BF16, SLUICE_F16: sums and averages of f32 travel as
                           this, half the bytes: contributions are rounded to nearest even, added in f32, and
                           the result rounded once. SLUICE_F16: each 16384 elements of what is reduced as
                           one (an operation, or those that are put together) are multiplied by a power of
                           two before, the same on all ranks (one small operation more finds it), so that
                           no sum overflows that f32 itself holds with a few bits to spare. Infinities and
                           NaN stay what they are */
  uint32_t measure_error; /* 1: what rounding to wire_dtype costs is added up, see sluice_stream_stats */
  uint32_t always_staged; /* 1: host memory too goes through the staging, as the GPU's does; with
                              SLUICE_DEVICE_HOST */
  uint64_t fusion_bytes;  /* most that operations of a group are put together to, on the wire; 64 MiB */
} sluice_stream_options;

typedef struct sluice_stream_stats {
  size_t struct_size;        /* set by the caller: sizeof(sluice_stream_stats) */
  uint64_t operations;       /* ended with SLUICE_OK, those of groups one by one */
  uint64_t rounds;           /* what they were put together, or cut, to */
  uint64_t pieces;           /* that were reduced */
  uint64_t bytes_staged_out; /* on the wire's side: from the buffers into the staging, ... */
  uint64_t bytes_staged_in;  /* ... and back */
  uint64_t pinned_bytes;     /* held */
  uint64_t elements_cast;    /* sent as wire_dtype */
  double cast_error_squares; /* with measure_error: the sum of (sent - given)^2 over finite elements, ... */
  double cast_value_squares; /* ... and of given^2: sqrt(error / value) is the relative error of what this
                                rank contributed. The result's rounding adds at most 2^-9 (bf16) or 2^-11
                                (f16) of each normal element */
} sluice_stream_stats;

SLUICE_API void sluice_stream_options_init_sized(sluice_stream_options* options, size_t size);
static inline void sluice_stream_options_init(sluice_stream_options* options) {
  sluice_stream_options_init_sized(options, sizeof *options);
}

/* Gives the session streams, once; before its first operation. NULL: all defaults. Pins staging_bytes and,
 * over RDMA, registers them. `error` as in sluice_session_create. SLUICE_UNSUPPORTED: this library has no
 * CUDA part, the machine no driver or GPU, or an old one; SLUICE_SYSTEM: memory can't be pinned, or the GPU
 * refuses; SLUICE_INVALID_ARGUMENT: an option, named, or the session has had operations, or has streams. The
 * session is as it was then. */
SLUICE_API sluice_status sluice_session_open_streams(sluice_session* session,
                                                     const sluice_stream_options* options, char* error,
                                                     size_t error_size);

/* Reduces `count` elements of `send` over all ranks into `recv`, ahead of all that `stream` is given from now
 * on. send == recv is allowed, other overlap is not. Both stay valid, and are touched by nobody else, until
 * the stream has passed this point. What is registered with sluice_memory_register_device travels without
 * staging. `request` (NULL: nobody asks, not with stream NULL on the host): for sluice_test and sluice_wait,
 * which report the end when `recv` holds the result. Within a group it must be NULL.
 *
 * SLUICE_INVALID_ARGUMENT: a null pointer, unknown dtype or op, count * size over 63 bits or beyond the
 * allocation that a pointer lies in, memory or a stream of another GPU, a host stream that is none.
 * SLUICE_UNSUPPORTED: the stream is being captured into a graph. SLUICE_AGAIN: more than 8192 pieces are
 * under way. SLUICE_SYSTEM: the GPU has failed, or there is no memory; the session has failed
 * with it, on all ranks. */
SLUICE_API sluice_status sluice_allreduce_on_stream(sluice_session* session, const void* send, void* recv,
                                                    size_t count, sluice_dtype dtype, sluice_op op,
                                                    sluice_stream stream, sluice_request* request);

/* Operations between the two are put together: neighbours of one stream, dtype and op, up to fusion_bytes.
 * They begin with sluice_group_end; buffers are in use from the first call on. Groups do not nest, and belong
 * to the session, not to a thread. `request` (may be NULL, as above) is over when all operations of the group
 * are, with the first error among them. When an operation in between was refused, so is sluice_group_end, and
 * nothing of the group is done: the same error, since ranks must agree on what a group holds. Nor is anything
 * done when it says SLUICE_AGAIN: the group is over, and to be made again. cudaStreamPerThread means the
 * thread that ends the group. */
SLUICE_API sluice_status sluice_group_begin(sluice_session* session);
SLUICE_API sluice_status sluice_group_end(sluice_session* session, sluice_request* request);

/* Why the last function of this header that failed on this thread did; never NULL. Valid until the next. */
SLUICE_API const char* sluice_refusal(void);

/* Counts so far. On a GPU with measure_error it waits for what is under way, other ranks included. */
SLUICE_API sluice_status sluice_session_stream_stats(sluice_session* session, sluice_stream_stats* stats);

/* A stream of the host: a thread that does what it is given, one after the other. `work` must not call into a
 * session's close, nor into this stream's destroy or synchronize. A child of fork() has none of its parent's
 * streams: there they are SLUICE_INVALID_ARGUMENT, and stay what they are. */
SLUICE_API sluice_status sluice_host_stream_create(sluice_stream* stream);
SLUICE_API sluice_status sluice_host_stream_submit(sluice_stream stream, void (*work)(void* argument),
                                                   void* argument);
/* Returns when all that was given before is done. */
SLUICE_API sluice_status sluice_host_stream_synchronize(sluice_stream stream);
/* Does what it was given before, then ends. No session may still use it. NULL is allowed. */
SLUICE_API sluice_status sluice_host_stream_destroy(sluice_stream stream);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_STREAMS_H_ */
