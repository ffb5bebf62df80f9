/* A reducer: part of view_change.pml. */

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

inline tell(w, r, what, history, number) {
  if
  :: control[AT(w, r)] == OPEN && REACHES(w, r) -> control_down[AT(w, r)]!what(history, number)
  :: else
  fi
}

#ifdef BUG_RATE_UNPROPOSED /* only removals are */
#define MAY_PROPOSE(history) (REMOVED(history) != 0)
#else
#define MAY_PROPOSE(history) true
#endif
inline hear(r, history) {
  if
  :: !COVERS(told[r], history) ->
     told[r] = told[r] | history;
     if
     :: MAY_PROPOSE(history) && REMOVED(told[r]) != ALL_REDUCERS && ARBITER(told[r]) == r ->
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

#ifdef BUG_COMMIT_EARLY /* the first answer is enough */
#define ANSWERED_ENOUGH(r) (answers[r] != 0)
#else
#define ANSWERED_ENOUGH(r) (answers[r] == ALL_RANKS)
#endif

inline answered(w, r, history, first) {
  if
  :: history == proposed[r] && !committed[r] ->
     answers[r] = answers[r] | BIT(w);
     smallest[r] = (first < smallest[r] -> first : smallest[r]);
     if
     :: ANSWERED_ENOUGH(r) ->
        committed[r] = 1;
        last_history[r] = proposed[r];
        last_base[r] = smallest[r];
        for (i : 0 .. NW - 1) {
          tell(i, r, COMMIT, last_history[r], last_base[r])
        }
     :: else
     fi
  :: else
  fi
}

#ifdef LEAVING
/* Who leaves has all results, so nobody can miss it when every other one says that it has them too. A rank that this reducer has lost
 * for good is not waited for: other reducers may still serve it, and then they wait. */
#define LOST_BY(r) ((apart[AT(0, r)] -> BIT(0) : 0) | (NW > 1 && apart[AT((NW > 1 -> 1 : 0), r)] -> BIT(1) : 0) | \
                    (NW > 2 && apart[AT((NW > 2 -> 2 : 0), r)] -> BIT(2) : 0))
#define MAY_ACKNOWLEDGE(r) (!dead[r] && leaves[r] != 0 && (leaves[r] | holds[r] | LOST_BY(r)) == ALL_RANKS)
inline acknowledge_leaves(r) {
  if
  :: MAY_ACKNOWLEDGE(r) ->
     acknowledged[r] = 1;
     for (i : 0 .. NW - 1) {
       if
       :: HAS(leaves[r], i) -> tell(i, r, LEAVE_ACK, 0, 0)
       :: else
       fi
     }
  :: else
  fi
}

inline hear_leave(w, r) {
  leaves[r] = leaves[r] | BIT(w);
#ifdef BUG_LEAVE_EARLY /* its own results are enough */
  tell(w, r, LEAVE_ACK, 0, 0)
#else
  acknowledge_leaves(r)
#endif
}

inline hear_holds(w, r) {
  holds[r] = holds[r] | BIT(w);
  acknowledge_leaves(r)
}
#define LEAVES_OF(w, r) \
  :: d_step { control_up[AT(w, r)]?LEAVE(a, b) -> hear_leave(w, r); i = 0 } \
  :: d_step { control_up[AT(w, r)]?HOLDS(a, b) -> hear_holds(w, r); i = 0 }
#endif

inline again(w, r, history) {
  if
  :: control[AT(w, r)] == RESUMING -> control[AT(w, r)] = OPEN
  :: else /* closed since */
  fi;
  if
  :: COVERS(told[r], history) ->
     if
     :: proposed[r] != 0 -> tell(w, r, QUERY, proposed[r], 0)
     :: else
     fi;
     if
     :: last_history[r] != 0 -> tell(w, r, COMMIT, last_history[r], last_base[r])
     :: else
     fi
  :: else -> hear(r, history)
  fi
}

inline left_before(w, r, said) {
#ifdef LEAVING
  if
  :: said -> hear_leave(w, r)
  :: else
  fi
#else
  skip
#endif
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
       left_before(w, r, b); \
       a = 0; b = 0; i = 0 \
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
  last_history[r] = 0; last_base[r] = 0;
#ifdef LEAVING
  leaves[r] = 0; holds[r] = 0; acknowledged[r] = 0;
#endif
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
#ifdef LEAVING
  :: d_step { !acknowledged[r] && MAY_ACKNOWLEDGE(r) -> acknowledge_leaves(r); i = 0 }
#endif
  REDUCER_WITH(0, r)
#ifdef LEAVING
  LEAVES_OF(0, r)
#endif
#if NW > 1
  REDUCER_WITH(1, r)
#ifdef LEAVING
  LEAVES_OF(1, r)
#endif
#endif
#if NW > 2
  REDUCER_WITH(2, r)
#ifdef LEAVING
  LEAVES_OF(2, r)
#endif
#endif
  od
}

