/* Sluice client library, C API: collectives in the order of CUDA streams, or of host streams on machines
 * without a GPU. The ABI is stable. This header extends sluice.h; read that first.
 *
 * A session with streams copies gradients from the GPU, reduces them, and copies the results back. All of
 * that happens after the earlier work of the caller's stream and before its later work:
 *
 *   sluice_session_open_streams(session, &options, error, sizeof error);
 *   produce_gradients<<<..., stream>>>(gradients);
 *   sluice_allreduce_on_stream(session, gradients, gradients, count, SLUICE_F32, SLUICE_AVG, stream, NULL);
 *   use_gradients<<<..., stream>>>(gradients);
 *
 * No function except sluice_session_close waits on the caller's thread for a stream or for the network. An
 * operation is split into segments. Their copies and reductions overlap, through host memory that is pinned
 * once (staging_bytes).
 *
 * Order. All ranks issue the same operations in the same order, in the same groups, with the same options
 * except device and measure_error. Neighboring operations of a group must be on one stream on all ranks or on
 * none, and in GPU memory on all ranks or in host memory on all. Every reduce-scatter and all-gather must be
 * in GPU memory on all ranks or in host memory on all. If two sessions share a GPU, all ranks issue the
 * operations of both sessions in one order; otherwise the GPU may deadlock. Two ranks of a job in one process
 * therefore need a GPU each. On a session with streams, sluice_allreduce and sluice_allreduce_async return
 * SLUICE_UNSUPPORTED. The other collectives of sluice.h work there on host memory, as given and outside the
 * order of streams.
 *
 * Operations of one session follow one another on the network, in the order of the calls. Collectives that
 * should share the links at the same time, such as a reduce-scatter and an all-gather, need a session each.
 *
 * Errors. A refused call (SLUICE_INVALID_ARGUMENT, SLUICE_UNSUPPORTED, SLUICE_AGAIN) has no effect, and
 * sluice_refusal returns the reason. If the session or the GPU fails later, streams continue without the
 * result: the content of `recv` is undefined, and sluice_session_error and the request report the failure.
 * Check one of the two before results become permanent, for example in a checkpoint, as with NCCL. If a copy
 * back to the GPU fails, the request reports it; without a request only CUDA does. */
#ifndef SLUICE_STREAMS_H_
#define SLUICE_STREAMS_H_

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUstream or cudaStream_t, or a stream of sluice_host_stream_create. NULL is the GPU's default stream. On
 * the host NULL means no stream: `send` must be ready at the call, and only the request reports the end. */
typedef void* sluice_stream;

typedef enum sluice_device_kind {
  SLUICE_DEVICE_HOST = 0, /* streams are host streams, buffers are host memory */
  SLUICE_DEVICE_CUDA = 1  /* buffers are GPU memory, managed memory, or host memory (pinned or pageable) */
} sluice_device_kind;

/* Value of sluice_stream_options.wire_dtype: elements travel in their own type. */
#define SLUICE_WIRE_AS_GIVEN (-1)

/* Options of a session's streams. Initialize with sluice_stream_options_init, then set the fields that
 * differ. Later versions append fields, as with sluice_options. */
typedef struct sluice_stream_options {
  size_t struct_size;  /* set by sluice_stream_options_init */
  int32_t device_kind; /* a sluice_device_kind; default SLUICE_DEVICE_HOST */
  /* Ordinal of the GPU in the driver's numbering (CUDA_VISIBLE_DEVICES); -1 (default): the GPU of the
   * caller's current context. */
  int32_t device;
  /* Bytes of pinned host memory, one half for each direction; default 64 MiB, at most 64 GiB. */
  uint64_t staging_bytes;
  /* Maximum bytes of a segment on the wire: a multiple of 64 KiB, at most a quarter of staging_bytes; default
   * 4 MiB. */
  uint32_t piece_bytes;
  /* The type in which sums and averages of f32 travel, in allreduce, reduce-scatter and reduce:
   * SLUICE_WIRE_AS_GIVEN (default), or SLUICE_BF16 or SLUICE_F16, which halve the bytes. All-gather and
   * broadcast move elements as given; to halve their bytes, convert before the call. Contributions are
   * rounded to nearest even and added in f32, and the result is rounded once. With SLUICE_F16 each block of
   * 16384 elements of a batch is multiplied by a power of two, equal on all ranks; a small extra operation
   * determines it. So no sum overflows that f32 can hold with a few bits to spare. Infinities and NaN stay
   * unchanged. See docs/design/adr/0013-f16-scale.md.
   *
   * SLUICE_MXFP8 and SLUICE_INT8_BLOCK take 264 bytes for 256 values, about a quarter of f32's bytes. In a
   * reduce-scatter each rank's part is filled up to whole blocks. Pass a residual to carry the rounding
   * errors over to the next operation.
   *
   * The variable SLUICE_WIRE (f32, bf16, f16, mxfp8 or int8) sets the default. See docs/guides/wire-types.md.
   */
  int32_t wire_dtype;
  /* 1: adds up the rounding errors of wire_dtype, see sluice_stream_stats; default 0. */
  uint32_t measure_error;
  /* 1: stages host memory as well, like GPU memory; only with SLUICE_DEVICE_HOST; default 0. */
  uint32_t always_staged;
  /* Maximum bytes on the wire of the operations of a group that are merged into one batch; default 64 MiB. */
  uint64_t fusion_bytes;
  /* 1: contributions of block types are rounded stochastically. The random bits depend on the rank, the
   * number of the batch and the index of the element alone. Default 0: to nearest, ties to even. */
  uint32_t stochastic_rounding;
  /* If a reducer is of a release without the block type of wire_dtype: 1 refuses the call with
   * SLUICE_UNSUPPORTED, 0 uses bf16 instead and logs a warning. Default: the variable SLUICE_WIRE_STRICT,
   * otherwise 0. */
  uint32_t wire_strict;
  /* Operations of fewer elements travel as given, whatever wire_dtype is: 8-bit types suit gradients but not
   * counters and losses. Default 0. */
  uint64_t wire_min_count;
} sluice_stream_options;

/* Counters of a session's streams. A batch is what is reduced as a unit: one operation, merged operations of
 * a group, or a part of a very large operation. */
typedef struct sluice_stream_stats {
  size_t struct_size;        /* set by the caller to sizeof(sluice_stream_stats) */
  uint64_t operations;       /* operations that ended with SLUICE_OK; those of groups count one by one */
  uint64_t rounds;           /* batches */
  uint64_t pieces;           /* segments that were reduced */
  uint64_t bytes_staged_out; /* copied from buffers to the staging memory, counted in the wire type */
  uint64_t bytes_staged_in;  /* copied from the staging memory to buffers, counted in the wire type */
  uint64_t pinned_bytes;     /* pinned memory held */
  uint64_t elements_cast;    /* elements converted to wire_dtype */
  /* With measure_error: the sums of (sent - value)^2 and of value^2 over the finite elements that this rank
   * sent. sqrt(cast_error_squares / cast_value_squares) is the relative error of its contributions. Rounding
   * the result adds at most 2^-9 (bf16) or 2^-11 (f16) of each normal element. */
  double cast_error_squares;
  double cast_value_squares;
} sluice_stream_stats;

/* Sets the defaults. `size` is the size of the caller's struct, as in sluice_options_init_sized. */
SLUICE_API void sluice_stream_options_init_sized(sluice_stream_options* options, size_t size);
static inline void sluice_stream_options_init(sluice_stream_options* options) {
  sluice_stream_options_init_sized(options, sizeof *options);
}

/* Opens the streams of a session, once and before its first operation. `options` NULL means the defaults.
 * Pins staging_bytes and, over RDMA, registers them. `error` is as in sluice_session_create.
 *
 * Returns SLUICE_UNSUPPORTED if the library has no CUDA part, or the machine has no driver or GPU, or one
 * that is too old. Returns SLUICE_SYSTEM if memory cannot be pinned or the GPU returns an error. Returns
 * SLUICE_INVALID_ARGUMENT with the name of an invalid option, or if the session has had operations or already
 * has streams. After an error the session is unchanged. */
SLUICE_API sluice_status sluice_session_open_streams(sluice_session* session,
                                                     const sluice_stream_options* options, char* error,
                                                     size_t error_size);

/* Enqueues the reduction of `count` elements of `send` over all ranks into `recv`: after the earlier work of
 * `stream` and before its later work.
 *
 * `send` and `recv` may be the same buffer but must not overlap otherwise. Both must stay valid, and nothing
 * else may access them, until the stream has passed this point. Memory registered with
 * sluice_memory_register_device is not staged.
 *
 * *request is for sluice_test and sluice_wait, which report the end when `recv` contains the result.
 * `request` may be NULL if `stream` is not, or on a GPU. It must be NULL within a group.
 *
 * Returns SLUICE_INVALID_ARGUMENT for a null pointer, an unknown dtype or op, more than 63 bits of bytes, a
 * range beyond its allocation, memory or a stream of another GPU, or an unknown host stream. Returns
 * SLUICE_UNSUPPORTED if the stream is being captured into a graph. Returns SLUICE_AGAIN if more than 8192
 * segments are in flight. Returns SLUICE_SYSTEM if the GPU has failed or memory is exhausted; the session has
 * then failed on all ranks. */
SLUICE_API sluice_status sluice_allreduce_on_stream(sluice_session* session, const void* send, void* recv,
                                                    size_t count, sluice_dtype dtype, sluice_op op,
                                                    sluice_stream stream, sluice_request* request);

/* The same with error feedback. `residual` has `count` floats, zero before the first operation on the tensor,
 * in memory of the same kind as `send`. If f32 travels as a block type, the residual is added to the values
 * of `send` before they are rounded, and replaced by the rounding errors. So what one operation loses, the
 * next operation on the same tensor sends. `residual` is in use as long as `send`. It has no effect with
 * other wire types, and may be NULL. */
SLUICE_API sluice_status sluice_allreduce_residual_on_stream(sluice_session* session, const void* send,
                                                             void* recv, size_t count, sluice_dtype dtype,
                                                             sluice_op op, float* residual,
                                                             sluice_stream stream, sluice_request* request);

/* Other collectives in stream order. Arguments and results are those of the function of sluice.h with _async
 * instead of _on_stream. Order, streams, requests and errors are those of sluice_allreduce_on_stream.
 *
 * Buffers. All of a call's buffers must be GPU memory, or all host memory. GPU memory is staged, also if it
 * is registered (sluice_memory_register_device). Only what a rank contributes is copied from the GPU, and
 * only what it receives is copied back. Host memory is used in place, unless wire_dtype, always_staged or a
 * merged group requires staging. A buffer without elements, and `recv` of a reduce on other ranks than the
 * root, may be NULL.
 *
 * The caller's stream waits for the result. If a rank receives nothing (root of a broadcast, other ranks of a
 * reduce, a part of 0 elements), its stream waits only until the contribution has left its buffer.
 *
 * `residual` is error feedback as in sluice_allreduce_residual_on_stream, with as many floats as `send` has
 * elements: in a reduce-scatter all parts. It may be NULL. */
SLUICE_API sluice_status sluice_reduce_scatter_on_stream(sluice_session* session, const void* send,
                                                         void* recv, size_t count, const size_t* counts,
                                                         sluice_dtype dtype, sluice_op op, float* residual,
                                                         sluice_stream stream, sluice_request* request);
SLUICE_API sluice_status sluice_all_gather_on_stream(sluice_session* session, const void* send, void* recv,
                                                     size_t count, const size_t* counts, sluice_dtype dtype,
                                                     sluice_stream stream, sluice_request* request);
SLUICE_API sluice_status sluice_reduce_on_stream(sluice_session* session, const void* send, void* recv,
                                                 size_t count, sluice_dtype dtype, sluice_op op,
                                                 uint32_t root, float* residual, sluice_stream stream,
                                                 sluice_request* request);
SLUICE_API sluice_status sluice_broadcast_on_stream(sluice_session* session, void* buffer, size_t count,
                                                    sluice_dtype dtype, uint32_t root, sluice_stream stream,
                                                    sluice_request* request);

/* Begin and end a group, which may contain all operations of this header. Neighboring operations of one kind
 * on one stream, with one dtype, op and root, are merged into batches of at most fusion_bytes. They start at
 * sluice_group_end; their buffers are in use from the call on. Groups do not nest. They belong to the
 * session, not to a thread. cudaStreamPerThread means the stream of the thread that ends the group.
 *
 * *request (NULL as in sluice_allreduce_on_stream) ends when all operations of the group have ended, with the
 * first error among them.
 *
 * If an operation within the group was refused, sluice_group_end returns the same error and runs nothing of
 * the group, because all ranks must agree on the content of a group. If it returns SLUICE_AGAIN, nothing ran
 * either; repeat the whole group. */
SLUICE_API sluice_status sluice_group_begin(sluice_session* session);
SLUICE_API sluice_status sluice_group_end(sluice_session* session, sluice_request* request);

/* Returns the reason for which the last failed function of this header on the calling thread failed. Never
 * NULL. Valid until the next failure on this thread. */
SLUICE_API const char* sluice_refusal(void);

/* Returns the counters so far. With measure_error on a GPU it waits for the operations in flight, and so for
 * other ranks. */
SLUICE_API sluice_status sluice_session_stream_stats(sluice_session* session, sluice_stream_stats* stats);

/* Create a host stream: a thread that runs submitted work in order. `work` must not close a session, and must
 * not destroy or synchronize with its own stream. A child of fork() has none of its parent's streams: there
 * the functions return SLUICE_INVALID_ARGUMENT for them and leave them unchanged. */
SLUICE_API sluice_status sluice_host_stream_create(sluice_stream* stream);
SLUICE_API sluice_status sluice_host_stream_submit(sluice_stream stream, void (*work)(void* argument),
                                                   void* argument);
/* Blocks until all work that was submitted before the call is done. */
SLUICE_API sluice_status sluice_host_stream_synchronize(sluice_stream stream);
/* Runs all submitted work and ends the stream. No session may use it any longer. `stream` may be NULL. */
SLUICE_API sluice_status sluice_host_stream_destroy(sluice_stream stream);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_STREAMS_H_ */
