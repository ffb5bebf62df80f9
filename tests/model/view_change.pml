/* The view change of PROTOCOL.md section 11, abstractly: docs/protocol-model.md says what is modelled and what is not.
 *
 * Sizes and what may go wrong are given with -D; the runner, model_test.py, lists the configurations it checks. A BUG_...
 * switch plants one error that the properties must find.
 *
 * A roster is the set of removed reducers, as bits; its version is their number and its hash is itself. A chunk's value is
 * the set of ranks whose contributions are in it.
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
#define LOSSES (CRASHES + PARTS)

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
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define ARBITER(roster) (HAS(roster, 0) == 0 -> 0 : (HAS(roster, 1) == 0 -> 1 : 2))
#define AT(w, r) ((w) * NR + (r))

/* Placement: chunk q goes to living reducer number q mod (number living). The chunk of sequence s from `from` on. */
#define LIVING(view) (NR - COUNT(view))
#define PLACE(view, r) ((r) - COUNT((view) & (BIT(r) - 1)))
#define CHUNK(view, from, r, s) \
  ((from) + ((PLACE(view, r) + LIVING(view) - ((from) % LIVING(view))) % LIVING(view)) + (s) * LIVING(view))

/* The first chunk without a result. */
#define FIRST_MISSING(set) \
  (HAS(set, 0) == 0 -> 0 : (HAS(set, 1) == 0 -> 1 : (HAS(set, 2) == 0 -> 2 : (HAS(set, 3) == 0 -> 3 : \
  (HAS(set, 4) == 0 -> 4 : (HAS(set, 5) == 0 -> 5 : 6))))))

mtype = { CONTRIBUTION, RESULT, COMMIT_LANE, RESUME, RESUME_ACK, KNOWN, AGAIN, ANSWER, QUERY, COMMIT };

/* One connection each: what is on it was sent and has not arrived. A send that finds it full is reported as an error. */
#define ROOM ((W + 1) * (LOSSES + 1) + LANE_CUTS + 1)
#define ROOM_CONTROL (4 + 2 * LOSSES)
chan lane_up[NW * NR] = [ROOM] of { mtype, byte /* view */, byte, byte, byte };
chan lane_down[NW * NR] = [ROOM] of { mtype, byte /* view */, byte, byte, byte };
chan control_up[NW * NR] = [ROOM_CONTROL] of { mtype, byte /* roster */, byte };
chan control_down[NW * NR] = [ROOM_CONTROL] of { mtype, byte /* roster */, byte };

/* A lane connection, as both ends know it: RESUMING until RESUME arrives, ACKED until RESUME_ACK does. */
#define CLOSED 0
#define OPEN 1
#define CUT 2
#define RESUMING 3
#define ACKED 4
byte lane[NW * NR] = OPEN;
byte control[NW * NR] = OPEN; /* CLOSED, OPEN, or RESUMING until AGAIN arrives */

/* Of ranks. */
byte known[NW];           /* its roster */
byte agreed[NW];          /* the newest it has answered */
byte view[NW];            /* the newest it has carried out */
bool still[NW];           /* it has answered and waits for the commit */
byte base[NW];            /* where that restarted */
byte have[NW];            /* chunks whose result it holds or has held */
byte ring[NW * RING];     /* kept results: chunk + 1 */
byte ring_value[NW * RING];
byte sent[NW * NR];       /* contributions of this view on that connection */
byte received[NW * NR];   /* results */

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
byte told[NR];            /* its roster */
byte proposed[NR];
bool committed[NR];
byte last_roster[NR];     /* its newest commit; 0 none */
byte last_base[NR];
byte answers[NR];         /* ranks */
byte smallest[NR];

/* What may still go wrong. */
byte crashes = CRASHES;
byte parts = PARTS;
byte lane_cuts = LANE_CUTS;
byte control_cuts = CONTROL_CUTS;
bool apart[NW * NR];

/* Of each version, what the first rank carried out. */
byte first_roster[NR + 1];
byte first_base[NR + 1];

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

/* ---- a rank ---- */

inline say(w, r, what, roster, number) {
  if
  :: control[AT(w, r)] != CLOSED && REACHES(w, r) -> control_up[AT(w, r)]!what(roster, number)
  :: else
  fi
}

inline close_connections(w, r) {
  lane[AT(w, r)] = CLOSED;
  control[AT(w, r)] = CLOSED;
  drain_lane(lane_down[AT(w, r)]);
  drain_control(control_down[AT(w, r)])
}

inline suspect(w, r) {
  known[w] = known[w] | BIT(r);
  close_connections(w, r);
  for (i : 0 .. NR - 1) {
    say(w, i, KNOWN, BIT(r), 0)
  }
}

inline contribute(w, r) {
#ifndef BUG_NO_STOP
  assert(view[w] == agreed[w]); /* in no view older than what it has answered */
#endif
  q = CHUNK(view[w], base[w], r, sent[AT(w, r)]);
  if
  :: HAS(have[w], q) ->
#ifdef BUG_KEPT_IGNORED
     lane_up[AT(w, r)]!CONTRIBUTION(view[w], sent[AT(w, r)], q, 0)
#else
     assert(ring[w * RING + q % RING] == q + 1); /* a kept result is there */
     lane_up[AT(w, r)]!CONTRIBUTION(view[w], sent[AT(w, r)], q, 128 + ring_value[w * RING + q % RING])
#endif
  :: else -> lane_up[AT(w, r)]!CONTRIBUTION(view[w], sent[AT(w, r)], q, BIT(w))
  fi;
  sent[AT(w, r)]++;
  q = 0
}

inline take_result(w, r, under, sequence, chunk, value) {
  if
  :: under == view[w] ->
     assert(sequence == received[AT(w, r)]);
     assert(chunk == CHUNK(view[w], base[w], r, sequence));
     received[AT(w, r)]++
  :: else -> assert(COVERS(view[w], under)) /* of an older view: no credit, but right all the same */
  fi;
  if
  :: !HAS(have[w], chunk) ->
     assert(value == ALL_RANKS);
     have[w] = have[w] | BIT(chunk);
     ring[w * RING + chunk % RING] = chunk + 1;
     ring_value[w * RING + chunk % RING] = value
  :: else
  fi
}

inline query(w, r, roster) {
  if
  :: roster == view[w] && view[w] == agreed[w] -> /* carried out */
#ifdef BUG_QUERY_AGAIN
     still[w] = 1;
#endif
     skip
  :: else ->
     if
#ifndef BUG_ANSWER_ANY
     :: !COVERS(roster, known[w] | agreed[w]) ->
        known[w] = known[w] | roster;
        say(w, r, KNOWN, known[w], 0)
#endif
     :: else ->
        known[w] = known[w] | roster;
        agreed[w] = roster;
#ifndef BUG_NO_STOP
        still[w] = 1;
#endif
        for (i : 0 .. NR - 1) {
          if
          :: HAS(roster, i) -> close_connections(w, i)
          :: else
          fi
        }
        say(w, r, ANSWER, roster, FIRST_MISSING(have[w]))
     fi
  fi
}

inline carry_out(w, roster, from) {
  if
  :: roster == view[w] /* carried out */
#ifdef BUG_OVERTAKEN
  :: roster != view[w] && !COVERS(roster, view[w]) && agreed[w] != roster
#else
  :: agreed[w] != roster && COVERS(agreed[w], roster) /* overtaken by what it has answered since */
#endif
  :: else ->
#ifndef BUG_OVERTAKEN
     assert(roster == agreed[w]);
#endif
     assert(from <= FIRST_MISSING(have[w]) && FIRST_MISSING(have[w]) <= from + D);
     if
     :: first_roster[COUNT(roster)] == 0 ->
        first_roster[COUNT(roster)] = roster;
        first_base[COUNT(roster)] = from
     :: else -> assert(first_roster[COUNT(roster)] == roster && first_base[COUNT(roster)] == from)
     fi;
     view[w] = roster;
     still[w] = 0;
#ifdef BUG_BASE_OWN
     base[w] = FIRST_MISSING(have[w]);
#else
     base[w] = from;
#endif
     for (i : 0 .. NR - 1) {
       sent[AT(w, i)] = 0;
       received[AT(w, i)] = 0;
       if
       :: NC > 0 && !HAS(roster, i) && lane[AT(w, i)] != CLOSED && lane[AT(w, i)] != CUT && REACHES(w, i) ->
          lane_up[AT(w, i)]!COMMIT_LANE(roster, from, 0, 0)
       :: else
       fi;
       say(w, i, KNOWN, known[w], 0)
     }
  fi
}

#ifdef BUG_DEPTH
#define WITHIN_DEPTH(w, q) (true)
#else
#define WITHIN_DEPTH(w, q) ((q) < FIRST_MISSING(have[w]) + D)
#endif
#define NEXT_CHUNK(w, r) CHUNK(view[w], base[w], r, sent[AT(w, r)])
#define MAY_CONTRIBUTE(w, r) \
  (lane[AT(w, r)] == OPEN && REACHES(w, r) && !still[w] && !HAS(view[w], r) && \
   sent[AT(w, r)] < received[AT(w, r)] + W && NEXT_CHUNK(w, r) < NC && WITHIN_DEPTH(w, NEXT_CHUNK(w, r)))

#ifdef FORGETFUL /* what was said on a connection that broke is not said again */
#define SAID_AGAIN(w) 0
#else
#define SAID_AGAIN(w) known[w]
#endif

/* What rank w does with reducer r. */
#define RANK_WITH(w, r) \
  :: d_step { MAY_CONTRIBUTE(w, r) -> contribute(w, r) } \
  :: d_step { \
       lane_down[AT(w, r)]?RESULT(a, b, c, d) -> \
       take_result(w, r, a, b, c, d); \
       a = 0; b = 0; c = 0; d = 0 \
     } \
  :: d_step { \
       lane_down[AT(w, r)]?RESUME_ACK(a, b, c, d) -> \
       acked(w, r, a, b); \
       a = 0; b = 0 \
     } \
  :: d_step { \
       control_down[AT(w, r)]?QUERY(a, b) -> \
       query(w, r, a); \
       a = 0; i = 0 \
     } \
  :: d_step { \
       control_down[AT(w, r)]?COMMIT(a, b) -> \
       carry_out(w, a, b); \
       a = 0; b = 0; i = 0 \
     } \
  :: d_step { \
       !REACHES(w, r) && !HAS(known[w], r) -> \
       suspect(w, r); \
       i = 0 \
     } \
  :: d_step { \
       lane[AT(w, r)] == CUT && REACHES(w, r) -> \
       drain_lane(lane_up[AT(w, r)]); \
       lane_up[AT(w, r)]!RESUME(view[w], base[w], received[AT(w, r)], 0); \
       lane[AT(w, r)] = RESUMING \
     } \
  :: d_step { \
       parts > 0 && REACHES(w, r) && control[AT(w, r)] != CLOSED -> \
       parts--; \
       apart[AT(w, r)] = 1; \
       drain_lane(lane_up[AT(w, r)]); \
       drain_lane(lane_down[AT(w, r)]); \
       drain_control(control_up[AT(w, r)]); \
       drain_control(control_down[AT(w, r)]); \
       i = 0 \
     } \
  :: d_step { \
       lane_cuts > 0 && REACHES(w, r) && lane[AT(w, r)] != CLOSED && lane[AT(w, r)] != CUT -> \
       lane_cuts--; \
       drain_lane(lane_down[AT(w, r)]); \
       lane[AT(w, r)] = CUT \
     } \
  :: d_step { \
       control_cuts > 0 && REACHES(w, r) && control[AT(w, r)] != CLOSED -> \
       control_cuts--; \
       drain_control(control_up[AT(w, r)]); \
       drain_control(control_down[AT(w, r)]); \
       control_up[AT(w, r)]!AGAIN(SAID_AGAIN(w), 0); \
       control[AT(w, r)] = RESUMING \
     }

inline acked(w, r, under, count) {
  lane[AT(w, r)] = OPEN;
  if
#ifndef BUG_ACK_OF_ANY_VIEW
  :: under == view[w] ->
#else
  :: true ->
#endif
#ifdef BUG_DUPLICATE
     sent[AT(w, r)] = received[AT(w, r)]
#else
     sent[AT(w, r)] = count
#endif
#ifndef BUG_ACK_OF_ANY_VIEW
  :: else
#endif
  fi
}

proctype rank(byte w) {
  byte a, b, c, d, i, q;
end:
  do
  RANK_WITH(w, 0)
#if NR > 1
  RANK_WITH(w, 1)
#endif
#if NR > 2
  RANK_WITH(w, 2)
#endif
  od
}

/* ---- a reducer ---- */

#define LISTENS(w, r) (lane[AT(w, r)] == OPEN || lane[AT(w, r)] == ACKED)

inline put_result(w, r, sequence) {
  if
  :: LISTENS(w, r) && REACHES(w, r) ->
     lane_down[AT(w, r)]!RESULT(lane_view[r], sequence, result_chunk[r * W + (sequence) % W],
                                result_value[r * W + (sequence) % W])
  :: else
  fi
}

/* A rank's connection goes over to a view; the first that does takes the lane with it. */
inline move(w, r, to, from) {
  if
  :: COVERS(to, lane_view[r]) && to != lane_view[r] ->
     lane_view[r] = to;
     lane_base[r] = from;
     made[r] = 0;
     for (i : 0 .. W - 1) {
       slot_chunk[r * W + i] = 0;
       slot_got[r * W + i] = 0;
       slot_sum[r * W + i] = 0;
       slot_kept[r * W + i] = 0;
       result_chunk[r * W + i] = 0;
       result_value[r * W + i] = 0
     }
  :: else -> assert(COVERS(lane_view[r], to) && (to != lane_view[r] || from == lane_base[r]))
  fi;
  link_view[AT(w, r)] = to;
  next[AT(w, r)] = 0
}

inline resumed(w, r, to, from, held) {
  assert(COVERS(to, link_view[AT(w, r)]));
  if
  :: to != link_view[AT(w, r)] ->
     assert(held == 0);
     move(w, r, to, from)
  :: else
  fi;
  if
  :: lane[AT(w, r)] == RESUMING ->
     lane[AT(w, r)] = ACKED;
     lane_down[AT(w, r)]!RESUME_ACK(to, next[AT(w, r)], 0, 0)
  :: else /* the rank has given up this connection too */
  fi;
  if
  :: to == lane_view[r] ->
     assert(held <= made[r] && made[r] <= held + W);
     i = held;
     do
     :: i < made[r] -> put_result(w, r, i); i++
     :: else -> break
     od
  :: else /* the lane has moved on: nothing of that view is left */
  fi
}

#define SLOT (r * W + sequence % W)
inline take_contribution(w, r, under, sequence, chunk, value) {
  assert(under == link_view[AT(w, r)]);
#ifndef BUG_DUPLICATE
  assert(sequence == next[AT(w, r)]);
#endif
  next[AT(w, r)] = sequence + 1;
  if
#ifndef BUG_STALE
  :: under != lane_view[r]
#endif
  :: else ->
     if
     :: slot_got[SLOT] == 0 -> slot_chunk[SLOT] = chunk
     :: else -> assert(slot_chunk[SLOT] == chunk)
     fi;
#ifndef BUG_DUPLICATE
     assert(!HAS(slot_got[SLOT], w));
#endif
     slot_got[SLOT] = slot_got[SLOT] | BIT(w);
     if
     :: value >= 128 -> slot_kept[SLOT] = value - 128
     :: else ->
        assert((slot_sum[SLOT] & value) == 0); /* nobody is counted twice */
        slot_sum[SLOT] = slot_sum[SLOT] | value
     fi;
     if
     :: slot_got[SLOT] == ALL_RANKS ->
        assert(sequence == made[r]);
        result_chunk[SLOT] = chunk;
        result_value[SLOT] = (slot_kept[SLOT] != 0 -> slot_kept[SLOT] : slot_sum[SLOT]);
        slot_chunk[SLOT] = 0;
        slot_got[SLOT] = 0;
        slot_sum[SLOT] = 0;
        slot_kept[SLOT] = 0;
        made[r]++;
        for (i : 0 .. NW - 1) {
          put_result(i, r, sequence)
        }
     :: else
     fi
  fi
}

inline tell(w, r, what, roster, number) {
  if
  :: control[AT(w, r)] == OPEN && REACHES(w, r) -> control_down[AT(w, r)]!what(roster, number)
  :: else
  fi
}

inline hear(r, roster) {
  if
  :: !COVERS(told[r], roster) ->
     told[r] = told[r] | roster;
     if
     :: told[r] != ALL_REDUCERS && ARBITER(told[r]) == r ->
        proposed[r] = told[r];
        committed[r] = 0;
        answers[r] = 0;
        smallest[r] = NC;
        for (i : 0 .. NW - 1) {
          tell(i, r, QUERY, proposed[r], 0)
        }
     :: else
     fi
  :: else
  fi
}

inline answered(w, r, roster, first) {
  if
  :: roster == proposed[r] && !committed[r] ->
     answers[r] = answers[r] | BIT(w);
     smallest[r] = (first < smallest[r] -> first : smallest[r]);
     if
     :: answers[r] == ALL_RANKS ->
        committed[r] = 1;
        last_roster[r] = proposed[r];
        last_base[r] = smallest[r];
        for (i : 0 .. NW - 1) {
          tell(i, r, COMMIT, last_roster[r], last_base[r])
        }
     :: else
     fi
  :: else
  fi
}

inline again(w, r, roster) {
  if
  :: control[AT(w, r)] == RESUMING -> control[AT(w, r)] = OPEN
  :: else /* closed since */
  fi;
  if
  :: COVERS(told[r], roster) ->
     if
     :: proposed[r] != 0 -> tell(w, r, QUERY, proposed[r], 0)
     :: else
     fi;
     if
     :: last_roster[r] != 0 -> tell(w, r, COMMIT, last_roster[r], last_base[r])
     :: else
     fi
  :: else -> hear(r, roster)
  fi
}

/* What reducer r does with rank w. */
#define REDUCER_WITH(w, r) \
  :: d_step { \
       lane_up[AT(w, r)]?CONTRIBUTION(a, b, c, d) -> \
       take_contribution(w, r, a, b, c, d); \
       a = 0; b = 0; c = 0; d = 0; i = 0 \
     } \
  :: d_step { \
       lane_up[AT(w, r)]?COMMIT_LANE(a, b, c, d) -> \
       assert(COVERS(a, link_view[AT(w, r)]) && a != link_view[AT(w, r)]); \
       move(w, r, a, b); \
       a = 0; b = 0; i = 0 \
     } \
  :: d_step { \
       lane_up[AT(w, r)]?RESUME(a, b, c, d) -> \
       resumed(w, r, a, b, c); \
       a = 0; b = 0; c = 0; i = 0 \
     } \
  :: d_step { \
       control_up[AT(w, r)]?KNOWN(a, b) -> \
       hear(r, a); \
       a = 0; i = 0 \
     } \
  :: d_step { \
       control_up[AT(w, r)]?ANSWER(a, b) -> \
       answered(w, r, a, b); \
       a = 0; b = 0; i = 0 \
     } \
  :: d_step { \
       control_up[AT(w, r)]?AGAIN(a, b) -> \
       again(w, r, a); \
       a = 0; i = 0 \
     }

inline die(r) {
  crashes--;
  dead[r] = 1;
  for (i : 0 .. NW - 1) {
    drain_lane(lane_up[AT(i, r)]);
    drain_control(control_up[AT(i, r)])
  }
  forget(r)
}

/* So that the dead differ in nothing. */
inline forget(r) {
  lane_view[r] = 0; lane_base[r] = 0; made[r] = 0;
  told[r] = 0; proposed[r] = 0; committed[r] = 0; answers[r] = 0; smallest[r] = 0;
  last_roster[r] = 0; last_base[r] = 0;
  for (i : 0 .. NW - 1) {
    next[AT(i, r)] = 0;
    link_view[AT(i, r)] = 0
  }
  for (i : 0 .. W - 1) {
    slot_chunk[r * W + i] = 0; slot_got[r * W + i] = 0; slot_sum[r * W + i] = 0; slot_kept[r * W + i] = 0;
    result_chunk[r * W + i] = 0; result_value[r * W + i] = 0
  }
}

proctype reducer(byte r) {
  byte a, b, c, d, i;
end:
  do
  :: d_step { crashes > 0 && !dead[r] -> die(r); i = 0 }
  REDUCER_WITH(0, r)
#if NW > 1
  REDUCER_WITH(1, r)
#endif
#if NW > 2
  REDUCER_WITH(2, r)
#endif
  od
}

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
      assert(view[w] == known[w] || !ANY_SERVES_ALL)
    }
  }
}

init {
  byte i;
  atomic {
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
