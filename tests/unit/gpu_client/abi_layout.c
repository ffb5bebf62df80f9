/* Prints the ABI that programs compiled against the public headers rely on: values of enumerators, and sizes
 * and offsets of fields. abi_test.sh compares the output with libsluice-0.abi. Existing lines must not
 * change; structs may only grow at their end. */
#include <sluice/findings.h>
#include <sluice/store.h>
#include <sluice/streams.h>
#include <stddef.h>
#include <stdio.h>

#define NUMBER(name) printf("number %s %d\n", #name, (int)(name))
#define FIELD(type, name) \
  printf("field %s.%s at %zu of %zu\n", #type, #name, offsetof(type, name), sizeof(((type*)0)->name))

int main(void) {
  NUMBER(SLUICE_OK);
  NUMBER(SLUICE_AGAIN);
  NUMBER(SLUICE_INVALID_ARGUMENT);
  NUMBER(SLUICE_UNSUPPORTED);
  NUMBER(SLUICE_REFUSED);
  NUMBER(SLUICE_TIMEOUT);
  NUMBER(SLUICE_MISMATCH);
  NUMBER(SLUICE_LOST);
  NUMBER(SLUICE_CLOSED);
  NUMBER(SLUICE_PROTOCOL);
  NUMBER(SLUICE_SYSTEM);
  NUMBER(SLUICE_INTERNAL);
  NUMBER(SLUICE_I8);
  NUMBER(SLUICE_U8);
  NUMBER(SLUICE_I32);
  NUMBER(SLUICE_U32);
  NUMBER(SLUICE_I64);
  NUMBER(SLUICE_U64);
  NUMBER(SLUICE_F16);
  NUMBER(SLUICE_F32);
  NUMBER(SLUICE_F64);
  NUMBER(SLUICE_BF16);
  NUMBER(SLUICE_F8E4M3);
  NUMBER(SLUICE_F8E5M2);
  NUMBER(SLUICE_MXFP8);
  NUMBER(SLUICE_INT8_BLOCK);
  NUMBER(SLUICE_SUM);
  NUMBER(SLUICE_PROD);
  NUMBER(SLUICE_MIN);
  NUMBER(SLUICE_MAX);
  NUMBER(SLUICE_AVG);
  NUMBER(SLUICE_DEVICE_HOST);
  NUMBER(SLUICE_DEVICE_CUDA);
  NUMBER(SLUICE_WIRE_AS_GIVEN);
  NUMBER(SLUICE_FINDING_NON_FINITE);
  NUMBER(SLUICE_FINDING_OUTLIER);
  NUMBER(SLUICE_FINDING_ZEROS);
  NUMBER(SLUICE_PUSH_CONTAINED);
  NUMBER(SLUICE_PUSH_LATE);
  NUMBER(SLUICE_PUSH_STALE);
  FIELD(sluice_options, struct_size);
  FIELD(sluice_options, reducers);
  FIELD(sluice_options, session_id);
  FIELD(sluice_options, rank);
  FIELD(sluice_options, ranks);
  FIELD(sluice_options, job);
  FIELD(sluice_options, key_file);
  FIELD(sluice_options, token_file);
  FIELD(sluice_options, lanes);
  FIELD(sluice_options, window_bytes);
  FIELD(sluice_options, slot_bytes);
  FIELD(sluice_options, progress_threads);
  FIELD(sluice_options, payload_crc);
  FIELD(sluice_options, connect_timeout_ms);
  FIELD(sluice_options, join_timeout_ms);
  FIELD(sluice_options, op_timeout_ms);
  FIELD(sluice_options, linger_ms);
  FIELD(sluice_options, interface_address);
  FIELD(sluice_options, keep_results);
  FIELD(sluice_options, resume_timeout_ms);
  FIELD(sluice_options, tenant);
  FIELD(sluice_options, rendezvous);
  FIELD(sluice_options, tls);
  FIELD(sluice_options, tls_ca);
  FIELD(sluice_options, tls_cert);
  FIELD(sluice_options, tls_key);
  FIELD(sluice_finding, struct_size);
  FIELD(sluice_finding, request);
  FIELD(sluice_finding, kind);
  FIELD(sluice_finding, rank);
  FIELD(sluice_finding, count);
  FIELD(sluice_finding, ratio);
  FIELD(sluice_store_options, struct_size);
  FIELD(sluice_store_options, reducers);
  FIELD(sluice_store_options, job);
  FIELD(sluice_store_options, tenant);
  FIELD(sluice_store_options, key_file);
  FIELD(sluice_store_options, token_file);
  FIELD(sluice_store_options, timeout_ms);
  FIELD(sluice_store_options, worker);
  FIELD(sluice_store_options, tls);
  FIELD(sluice_store_options, tls_ca);
  FIELD(sluice_store_options, tls_cert);
  FIELD(sluice_store_options, tls_key);
  FIELD(sluice_stats, struct_size);
  FIELD(sluice_stats, operations);
  FIELD(sluice_stats, payload_bytes_out);
  FIELD(sluice_stats, payload_bytes_in);
  FIELD(sluice_stats, wire_bytes_out);
  FIELD(sluice_stats, wire_bytes_in);
  FIELD(sluice_stats, send_calls);
  FIELD(sluice_stats, receive_calls);
  FIELD(sluice_stats, reducers);
  FIELD(sluice_stats, lanes);
  FIELD(sluice_stats, missing_ranks);
  FIELD(sluice_stats, missing_rank);
  FIELD(sluice_stats, waited_ms);
  FIELD(sluice_stats, connections_resumed);
  FIELD(sluice_stats, view_changes);
  FIELD(sluice_stats, payload_bytes_resent);
  FIELD(sluice_stats, stalled_us);
  FIELD(sluice_stats, longest_stall_us);
  FIELD(sluice_stats, stalls);
  FIELD(sluice_stats, reducers_lost);
  FIELD(sluice_stats, payload_bytes_copied);
  FIELD(sluice_stats, rdma_lanes);
  FIELD(sluice_stats, rdma_work_posted);
  FIELD(sluice_stats, rdma_doorbells);
  FIELD(sluice_stats, rdma_completions);
  FIELD(sluice_stream_options, struct_size);
  FIELD(sluice_stream_options, device_kind);
  FIELD(sluice_stream_options, device);
  FIELD(sluice_stream_options, staging_bytes);
  FIELD(sluice_stream_options, piece_bytes);
  FIELD(sluice_stream_options, wire_dtype);
  FIELD(sluice_stream_options, measure_error);
  FIELD(sluice_stream_options, always_staged);
  FIELD(sluice_stream_options, fusion_bytes);
  FIELD(sluice_stream_options, stochastic_rounding);
  FIELD(sluice_stream_options, wire_strict);
  FIELD(sluice_stream_options, wire_min_count);
  FIELD(sluice_stream_stats, struct_size);
  FIELD(sluice_stream_stats, operations);
  FIELD(sluice_stream_stats, rounds);
  FIELD(sluice_stream_stats, pieces);
  FIELD(sluice_stream_stats, bytes_staged_out);
  FIELD(sluice_stream_stats, bytes_staged_in);
  FIELD(sluice_stream_stats, pinned_bytes);
  FIELD(sluice_stream_stats, elements_cast);
  FIELD(sluice_stream_stats, cast_error_squares);
  FIELD(sluice_stream_stats, cast_value_squares);
  return 0;
}
