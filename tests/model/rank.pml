/* A rank: part of view_change.pml. */

inline say(w, r, what, history, number) {
  if
  :: control[AT(w, r)] != CLOSED && REACHES(w, r) -> control_up[AT(w, r)]!what(history, number)
  :: else
  fi
}

inline close_connections(w, r) {
  lane[AT(w, r)] = CLOSED;
  control[AT(w, r)] = CLOSED;
  drain_lane(lane_down[AT(w, r)]);
  drain_control(control_down[AT(w, r)])
}

#ifdef LEAVING
/* All its results are there. What it keeps others may still need, so it goes on as before until all reducers that it has not given up
 * acknowledge that. */
inline leave(w) {
  leaving[w] = 1;
  for (i : 0 .. NR - 1) {
    say(w, i, LEAVE, 0, 0)
  }
}

/* A heartbeat. */
inline hold(w) {
  holding[w] = 1;
  for (i : 0 .. NR - 1) {
    say(w, i, HOLDS, 0, 0)
  }
}

#ifdef BUG_ONE_ACK
#define MAY_GO(w) (!gone[w] && left[w] != 0)
#else
#define MAY_GO(w) (!gone[w] && (left[w] & ~known[w]) != 0 && COVERS(left[w] | known[w], ALL_REDUCERS))
#endif
inline go(w) {
  gone[w] = 1;
  left[w] = 0;
  for (i : 0 .. NR - 1) {
    close_connections(w, i)
  }
}
#define SAID_LEAVE(w) leaving[w]
#define IS_GONE(w) gone[w]
#else
#define SAID_LEAVE(w) 0
#define IS_GONE(w) false
#endif

inline suspect(w, r) {
  known[w] = known[w] | BIT(r);
  close_connections(w, r);
  for (i : 0 .. NR - 1) {
    say(w, i, KNOWN, BIT(r), 0)
  }
}

/* Its link has another rate. */
inline change_rate(w) {
  rates--;
  known[w] = known[w] | (HAS(known[w], 3) == 0 -> BIT(3) : BIT(4));
  for (i : 0 .. NR - 1) {
    say(w, i, KNOWN, known[w] & ~ALL_REDUCERS, 0)
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

inline query(w, r, history) {
  if
  :: history == view[w] && view[w] == agreed[w] -> /* carried out */
#ifdef BUG_QUERY_AGAIN
     still[w] = 1;
#endif
     skip
  :: else ->
     if
#ifndef BUG_ANSWER_ANY
     :: !COVERS(history, REMOVED(known[w]) | agreed[w]) ->
        known[w] = known[w] | history;
        say(w, r, KNOWN, known[w], 0)
#endif
     :: else ->
        known[w] = known[w] | history;
        agreed[w] = history;
#ifndef BUG_NO_STOP
        still[w] = 1;
#endif
        for (i : 0 .. NR - 1) {
          if
          :: HAS(history, i) -> close_connections(w, i)
          :: else
          fi
        }
        say(w, r, ANSWER, history, FIRST_MISSING(have[w]))
     fi
  fi
}

inline carry_out(w, history, from) {
  if
  :: history == view[w] /* carried out */
#ifdef BUG_OVERTAKEN
  :: history != view[w] && !COVERS(history, view[w]) && agreed[w] != history
#else
  :: agreed[w] != history && COVERS(agreed[w], history) /* overtaken by what it has answered since */
#endif
  :: else ->
#ifndef BUG_OVERTAKEN
     assert(history == agreed[w]);
#endif
     assert(from <= FIRST_MISSING(have[w]) && FIRST_MISSING(have[w]) <= from + D);
     if
     :: first_history[COUNT(history)] == 0 ->
        first_history[COUNT(history)] = history;
        first_base[COUNT(history)] = from
     :: else -> assert(first_history[COUNT(history)] == history && first_base[COUNT(history)] == from)
     fi;
     view[w] = history;
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
       :: NC > 0 && !HAS(history, i) && lane[AT(w, i)] != CLOSED && lane[AT(w, i)] != CUT && REACHES(w, i) ->
          lane_up[AT(w, i)]!COMMIT_LANE(history, from, 0, 0)
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

#ifdef FORGETFUL /* messages of a broken connection are not repeated */
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
       !REACHES(w, r) && !HAS(known[w], r) && !IS_GONE(w) -> \
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
       control_up[AT(w, r)]!AGAIN(SAID_AGAIN(w), SAID_LEAVE(w)); \
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
#if RATES > 0
  :: d_step { w == 0 && rates > 0 && !IS_GONE(w) -> change_rate(w); i = 0 }
#endif
#ifdef LEAVING
  :: d_step { have[w] == ALL_CHUNKS && !leaving[w] && REMOVED(known[w]) != ALL_REDUCERS -> leave(w); i = 0 }
#ifdef HEARTBEATS
#ifdef BUG_HOLDS_ANY
#define MAY_SAY_HOLDS(w) true
#else
#define MAY_SAY_HOLDS(w) have[w] == ALL_CHUNKS
#endif
  :: d_step { MAY_SAY_HOLDS(w) && !leaving[w] && !holding[w] && REMOVED(known[w]) != ALL_REDUCERS -> hold(w); i = 0 }
#endif
  :: d_step { MAY_GO(w) -> go(w); i = 0 }
  :: d_step { control_down[AT(w, 0)]?LEAVE_ACK(a, b) -> left[w] = left[w] | BIT(0) }
#if NR > 1
  :: d_step { control_down[AT(w, 1)]?LEAVE_ACK(a, b) -> left[w] = left[w] | BIT(1) }
#endif
#if NR > 2
  :: d_step { control_down[AT(w, 2)]?LEAVE_ACK(a, b) -> left[w] = left[w] | BIT(2) }
#endif
#endif
  RANK_WITH(w, 0)
#if NR > 1
  RANK_WITH(w, 1)
#endif
#if NR > 2
  RANK_WITH(w, 2)
#endif
  od
}

