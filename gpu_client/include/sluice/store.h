/* Models: parameters that reducers started with --state keep, and that workers push to and pull from
 * (docs/guides/models.md). This header extends sluice.h; read that first.
 *
 * A model is a list of tensors with one history of versions. A push adds one worker's delta to a later
 * version, by the rule of the model. A pull copies one whole version. All calls block. A handle may be used
 * by several threads; pushes of one handle run one after another, pulls too, and a push runs beside a pull.
 *
 * A parameter timeout_ms of 0 is that of the options. It bounds waits; a transfer that makes progress is
 * finished. Errors have a text: sluice_store_error(). SLUICE_TIMEOUT, SLUICE_LOST: the call may be repeated,
 * also a push, with the same deltas and base: it still counts once. Other deltas are another push. After
 * fork() as in sluice.h. */
#ifndef SLUICE_STORE_H_
#define SLUICE_STORE_H_

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A client of one model, or of none. Those of one process, pool and job share connections. */
typedef struct sluice_store sluice_store;

typedef struct sluice_store_options {
  size_t struct_size;   /* set by sluice_store_options_init() */
  const char* reducers; /* "host:port,host:port": any of the pool; NULL: SLUICE_REDUCERS */
  const char* job;      /* NULL: SLUICE_JOB, otherwise "default" */
  const char* tenant;   /* NULL: SLUICE_TENANT, otherwise the job */
  const char* key_file; /* both NULL: SLUICE_KEY_FILE or SLUICE_TOKEN_FILE, as in sluice_options */
  const char* token_file;
  uint32_t timeout_ms; /* of connecting, and of every call without a timeout of its own; default 60000 */
  uint64_t worker;     /* identity of this worker's pushes, in whose order sync steps add; 0: random */
  const char* tls;     /* TLS, as in sluice_options */
  const char* tls_ca;
  const char* tls_cert;
  const char* tls_key;
} sluice_store_options;

SLUICE_API void sluice_store_options_init_sized(sluice_store_options* options, size_t struct_size);
#define sluice_store_options_init(options) sluice_store_options_init_sized((options), sizeof(*(options)))

/* Connects to a reducer of the list that answers. On an error `*store` is NULL, and `error` receives the
 * text. */
SLUICE_API sluice_status sluice_store_open(const sluice_store_options* options, sluice_store** store,
                                           char* error, size_t error_bytes);
SLUICE_API void sluice_store_close(sluice_store* store);
/* The text of the calling thread's last error; empty without one. Valid until that thread's next call. */
SLUICE_API const char* sluice_store_error(void);

/* Creates the model that `specification` (JSON) describes, and opens it. `tensors` has the first version: one
 * pointer for each tensor, of its dtype, in the order of the specification; NULL: zeros. If a model of this
 * name exists: SLUICE_OK and *created = 0 if its specification is equal, otherwise SLUICE_MISMATCH, with the
 * difference. */
SLUICE_API sluice_status sluice_store_create(sluice_store* store, const char* specification,
                                             const void* const* tensors, int* created);
/* Opens a model: push and pull refer to it from now on. Waits until its creator has started it. */
SLUICE_API sluice_status sluice_store_model(sluice_store* store, const char* name);
/* Deletes a model and its files. SLUICE_OK if there is none. */
SLUICE_API sluice_status sluice_store_delete(sluice_store* store, const char* name);

/* Texts as JSON, valid until the handle's next call of one of these two functions: the names of all models;
 * the open model: {"spec": {...}, "model": ID, "shards": [...], "version": V}. */
SLUICE_API sluice_status sluice_store_list(sluice_store* store, const char** json);
SLUICE_API sluice_status sluice_store_describe(sluice_store* store, const char** json);

typedef enum sluice_push_outcome {
  SLUICE_PUSH_CONTAINED = 0, /* a version contains the push; it is not lost unless both copies are */
  SLUICE_PUSH_LATE = 2,      /* mode sync: the step of its base is over; the push does not count */
  SLUICE_PUSH_STALE = 3      /* mode bounded: its base is too old; the push does not count */
} sluice_push_outcome;

/* Pushes a delta: one pointer for each tensor, of the tensor's dtype. `base`: the version that the worker
 * started from. `weight`: in the mean of a sync step; above 0. `wire_dtype`: SLUICE_F32, SLUICE_BF16 or
 * SLUICE_F16 with half of the bytes, SLUICE_MXFP8 or SLUICE_INT8_BLOCK with a quarter; rounding errors are
 * not fed back. Returns when a version contains the push, or none will; *version is the current version.
 * Repeats itself after a lost connection, without counting twice. */
SLUICE_API sluice_status sluice_store_push(sluice_store* store, const void* const* deltas, uint64_t base,
                                           float weight, int wire_dtype, uint32_t timeout_ms,
                                           sluice_push_outcome* outcome, uint64_t* version);

/* Copies the current version, which must be at least `min_version`, to `tensors`; waits for it until the
 * timeout. *version is the version copied. `wire_dtype`: as above. On an error the tensors may hold parts of
 * versions. */
SLUICE_API sluice_status sluice_store_pull(sluice_store* store, void* const* tensors, uint64_t min_version,
                                           int wire_dtype, uint32_t timeout_ms, uint64_t* version);
/* Pushes, and copies the version that the push leads to: a push and a pull of it, but with sync steps in
 * about the time of one of them. The step begins with the first values that have arrived from all workers of
 * its quorum, and its values are pulled while they are computed. So a worker counts from the beginning of its
 * call, and the step waits for all that it then pushes. *version is the version copied, whatever the outcome.
 * `tensors` must not overlap `deltas`. On an error the tensors may hold parts of versions; call it again with
 * the same deltas and base, and the push counts once. */
SLUICE_API sluice_status sluice_store_push_pull(sluice_store* store, const void* const* deltas, uint64_t base,
                                                float weight, int push_wire_dtype, void* const* tensors,
                                                int pull_wire_dtype, uint32_t timeout_ms,
                                                sluice_push_outcome* outcome, uint64_t* version);
/* Waits like a pull, and copies nothing. */
SLUICE_API sluice_status sluice_store_wait(sluice_store* store, uint64_t min_version, uint32_t timeout_ms,
                                           uint64_t* version);

/* Writes the current version to a safetensors file. `resumable`: with the state of the rule, in f32;
 * otherwise the parameters alone, in their dtypes. */
SLUICE_API sluice_status sluice_store_snapshot(sluice_store* store, const char* path, int resumable,
                                               uint64_t* version);
/* Creates the model like sluice_store_create(), from a file of sluice_store_snapshot() of the same
 * specification, or, with `any`, from any safetensors file with tensors of these names and shapes. */
SLUICE_API sluice_status sluice_store_restore(sluice_store* store, const char* specification,
                                              const char* path, int any, int* created);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_STORE_H_ */
