/* Findings: what reducers with --health find wrong with the gradients of a rank (docs/guides/health.md).
 * Reducers without that option report nothing. */
#ifndef SLUICE_FINDINGS_H_
#define SLUICE_FINDINGS_H_

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most severe first. */
typedef enum sluice_finding_kind {
  SLUICE_FINDING_NON_FINITE = 1, /* NaNs or infinities */
  SLUICE_FINDING_OUTLIER = 2,    /* values that are far larger than those of the other ranks */
  SLUICE_FINDING_ZEROS = 3       /* nothing but zeros, while most ranks have other values */
} sluice_finding_kind;

/* The most severe finding of one operation. Equal on all ranks that receive results from the operation. */
typedef struct sluice_finding {
  /* Set by the caller to sizeof(sluice_finding). No more bytes than that are written. */
  size_t struct_size;
  sluice_request request; /* of the operation, which may be invalid by now; 0: it had none */
  uint32_t kind;          /* a sluice_finding_kind */
  uint32_t rank;          /* whose contribution it is; of several ranks the lowest */
  uint64_t count;         /* of SLUICE_FINDING_NON_FINITE: such values */
  double ratio;           /* of SLUICE_FINDING_OUTLIER: the largest magnitude over the median of the ranks' */
} sluice_finding;

/* Takes the oldest finding that was not taken yet, or returns SLUICE_AGAIN if there is none. The finding of
 * an operation is there before sluice_test or sluice_wait reports the operation's end. The last 64 are kept.
 * Returns SLUICE_INVALID_ARGUMENT if finding->struct_size is not set. Any thread. */
SLUICE_API sluice_status sluice_next_finding(sluice_session* session, sluice_finding* finding);

#ifdef __cplusplus
}
#endif
#endif /* SLUICE_FINDINGS_H_ */
