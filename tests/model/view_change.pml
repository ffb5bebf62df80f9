/* The view change of protocol.md section 11, abstractly: docs/design/protocol-model.md says what is modelled and what is not.
 *
 * Sizes and what may go wrong are given with -D; the runner, model_test.py, lists the configurations it checks. A BUG_...
 * switch plants one error that the properties must find.
 *
 * A history is the set of removed reducers, as bits, and of the changes of a link's rate; its version is their number and its
 * hash is itself. A chunk's value is the set of ranks whose contributions are in it.
 */
#ifndef NW
#define NW 2 /* ranks */
#endif
#ifndef NR
#define NR 2 /* reducers of the first view, at most 3, one lane each */
#endif
#ifndef NC
#define NC 3 /* chunks of the job */
#endif
#ifndef W
#define W 1 /* slots of a lane */
#endif
#define D (NR * W)
#ifndef CRASHES
#define CRASHES 1 /* reducers that may die */
#endif
#ifndef PARTS
#define PARTS 0 /* pairs of a rank and a reducer that may lose each other for good */
#endif
#ifndef LANE_CUTS
#define LANE_CUTS 0 /* lane connections that may break and be resumed */
#endif
#ifndef CONTROL_CUTS
#define CONTROL_CUTS 0 /* the same of control connections */
#endif
#ifndef RATES
#define RATES 0 /* changes of the rate of rank 0's link, at most 2 */
#endif
#define LOSSES (CRASHES + PARTS + RATES)

#ifdef BUG_RING
#define RING (D - 1)
#else
#define RING D
#endif

#define ALL_RANKS ((1 << NW) - 1)
#define ALL_REDUCERS ((1 << NR) - 1)
#define ALL_CHUNKS ((1 << NC) - 1)
#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define COVERS(a, b) (((a) | (b)) == (a))
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + RATE(set))
/* Bits 3 and 4 of a history: the first and the second change. */
#define RATE(set) ((((set) >> 3) & 1) + (((set) >> 4) & 1))
#define REMOVED(history) ((history) & ALL_REDUCERS)
#define ARBITER(history) (HAS(history, 0) == 0 -> 0 : (HAS(history, 1) == 0 -> 1 : 2))
#define AT(w, r) ((w) * NR + (r))

/* Placement: chunk q goes to living reducer number q mod (number living), further by one for each change of the rate. The chunk of
 * sequence s from `from` on. */
#define LIVING(view) (NR - COUNT(REMOVED(view)))
#define PLACE(view, r) ((r) - COUNT(REMOVED(view) & (BIT(r) - 1)) + RATE(view))
#define CHUNK(view, from, r, s) \
  ((from) + ((PLACE(view, r) + LIVING(view) - ((from) % LIVING(view))) % LIVING(view)) + (s) * LIVING(view))

/* The first chunk without a result. */
#define FIRST_MISSING(set) \
  (HAS(set, 0) == 0 -> 0 : (HAS(set, 1) == 0 -> 1 : (HAS(set, 2) == 0 -> 2 : (HAS(set, 3) == 0 -> 3 : \
  (HAS(set, 4) == 0 -> 4 : (HAS(set, 5) == 0 -> 5 : 6))))))

mtype = { CONTRIBUTION, RESULT, COMMIT_LANE, RESUME, RESUME_ACK, KNOWN, AGAIN, ANSWER, QUERY, COMMIT, LEAVE, HOLDS, LEAVE_ACK };

/* One connection each: what is on it was sent and has not arrived. A send that finds it full is reported as an error. */
#define ROOM ((W + 1) * (LOSSES + 1) + LANE_CUTS + 1)
#ifdef LEAVING
#define ROOM_CONTROL (6 + 2 * LOSSES)
#else
#define ROOM_CONTROL (4 + 2 * LOSSES)
#endif
chan lane_up[NW * NR] = [ROOM] of { mtype, byte /* view */, byte, byte, byte };
chan lane_down[NW * NR] = [ROOM] of { mtype, byte /* view */, byte, byte, byte };
chan control_up[NW * NR] = [ROOM_CONTROL] of { mtype, byte /* history */, byte };
chan control_down[NW * NR] = [ROOM_CONTROL] of { mtype, byte /* history */, byte };

/* A lane connection, as both ends know it: RESUMING until RESUME arrives, ACKED until RESUME_ACK does. */
#define CLOSED 0
#define OPEN 1
#define CUT 2
#define RESUMING 3
#define ACKED 4
byte lane[NW * NR] = OPEN;
byte control[NW * NR] = OPEN; /* CLOSED, OPEN, or RESUMING until AGAIN arrives */

/* Of ranks. */
byte known[NW];           /* its history */
byte agreed[NW];          /* the newest it has answered */
byte view[NW];            /* the newest it has carried out */
bool still[NW];           /* it has answered and waits for the commit */
byte base[NW];            /* where that restarted */
byte have[NW];            /* chunks whose result it holds or has held */
byte ring[NW * RING];     /* kept results: chunk + 1 */
byte ring_value[NW * RING];
byte sent[NW * NR];       /* contributions of this view on that connection */
byte received[NW * NR];   /* results */

#ifdef LEAVING
bool leaving[NW];         /* has said so */
byte left[NW];            /* reducers that acknowledged that */
bool gone[NW];
#endif

/* Of reducers. */
bool dead[NR];
byte lane_view[NR];
byte lane_base[NR];
byte made[NR];            /* results of this view */
byte next[NW * NR];       /* the rank's next contribution */
byte link_view[NW * NR];  /* the view of its connection */
byte slot_chunk[NR * W];
byte slot_got[NR * W];    /* ranks */
byte slot_sum[NR * W];
byte slot_kept[NR * W];   /* the result a rank contributed; 0 none */
byte result_chunk[NR * W];
byte result_value[NR * W];
byte told[NR];            /* its history */
byte proposed[NR];
bool committed[NR];
byte last_history[NR];     /* its newest commit; 0 none */
byte last_base[NR];
byte answers[NR];         /* ranks */
byte smallest[NR];
#ifdef LEAVING
byte leaves[NR];          /* ranks that have said LEAVE */
bit acknowledged[NR];     /* it has sent LEAVE_ACK */
byte holds[NR];           /* ranks that have said by a heartbeat that they have all results */
bit holding[NW];          /* has said so */
#endif

/* What may still go wrong. */
byte crashes = CRASHES;
byte parts = PARTS;
byte lane_cuts = LANE_CUTS;
byte control_cuts = CONTROL_CUTS;
byte rates = RATES;
bool apart[NW * NR];

/* Of each version, what the first rank carried out. */
byte first_history[NR + RATES + 1];
byte first_base[NR + RATES + 1];

#define REACHES(w, r) (!dead[r] && !apart[AT(w, r)])

inline drain_lane(c) {
  do
  :: len(c) > 0 -> c?_,_,_,_,_
  :: else -> break
  od
}
inline drain_control(c) {
  do
  :: len(c) > 0 -> c?_,_,_
  :: else -> break
  od
}

#include "rank.pml"
#include "reducer.pml"

/* ---- when nothing moves any more ---- */

#define SERVES_ALL(r) (!dead[r] && !apart[AT(0, r)] && (NW < 2 || !apart[AT((NW > 1 -> 1 : 0), r)]) && \
                       (NW < 3 || !apart[AT((NW > 2 -> 2 : 0), r)]))
#define ANY_SERVES_ALL \
  (SERVES_ALL(0) || (NR > 1 && SERVES_ALL((NR > 1 -> 1 : 0))) || (NR > 2 && SERVES_ALL((NR > 2 -> 2 : 0))))

proctype judge() {
  byte w;
end:
  timeout ->
  d_step {
    for (w : 0 .. NW - 1) {
      assert(have[w] == ALL_CHUNKS || !ANY_SERVES_ALL);
      assert(view[w] == known[w] || !ANY_SERVES_ALL || IS_GONE(w));
#ifdef LEAVING
      assert(gone[w] || !ANY_SERVES_ALL)
#endif
    }
  }
}

inline spare(what) {
  do
  :: what > 0 -> what--
  :: break
  od
}

init {
  byte i;
  atomic {
    /* Less may go wrong than may, or what does not move until the next loss would pass for one that moves. */
    spare(crashes);
    spare(parts);
    spare(lane_cuts);
    spare(control_cuts);
    spare(rates);
    for (i : 0 .. NR - 1) {
      run reducer(i)
    }
    for (i : 0 .. NW - 1) {
      run rank(i)
    }
#ifndef FORGETFUL
    run judge();
#endif
    i = 0
  }
}
