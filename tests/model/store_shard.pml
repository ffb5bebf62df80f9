/* A reducer as the owner or the copy of a shard: part of store.pml. */

inline learn(r) {
  newest[r] = current;
  if
  :: number[attempt[r]] <= number[current] -> attempt[r] = 0
  :: else
  fi
}

/* By compare-and-swap of the shard's generation. The transaction reads the current version too. So that states differ in less, reducers
 * that are neither know it at once, for it makes no difference to them, and PREPARED of older generations are forgotten. */
inline change(s, owner, copy) {
  assert(generation[s] < 7);
  generation[s]++;
  owned[AT(owner, s)] = owned[AT(owner, s)] | BIT(generation[s]);
  if
  :: copy != NONE -> copied[AT(copy, s)] = copied[AT(copy, s)] | BIT(generation[s])
  :: else
  fi;
  for (k : 0 .. NR - 1) {
    if
    :: k == owner || k == copy || (!dead[k] && known[AT(k, s)] != 0 && !OWNS(k, s) && !COPIES(k, s)) -> known[AT(k, s)] = generation[s]
    :: else
    fi
  }
  learn(owner);
  for (k : 2 .. A) {
    if
    :: IS(COMMIT_ANY) || IS(OLD_OWNER) || IS(LEADER_ONLY)
    :: else -> prepared[OF(k, s)] = 0
    fi
  }
}

/* ---- steps ---- */

/* An owner asks which version is current. The leader has no other answer to its commit: the one that it gets may be lost. */
#define MAY_LEARN(r, s) (OWNS(r, s) && !STRAY(r, s) && newest[r] != current && !(IS(READ_BEFORE) && attempt[r] != current))

#define MAY_REPLACE(r, s, a) \
  (HELD(r, s, number[a]) == 0 || HELD(r, s, number[a]) == a || NEWER(a, HELD(r, s, number[a])) || IS(ANY_ORDER))
/* STEP has come to one that believes that it is the owner. The leader gives none but its own to its own shard. */
#define MAY_STEP(r, s, a) \
  (pushes[a] != 0 && number[a] > number[newest[r]] && OWNS(r, s) && (s != 0 || attempt[r] == a || IS(OLD_LEADER)) && \
   !(HELD(r, s, number[a]) == a && HAS(sent[OF(a, s)] | prepared[OF(a, s)], known[AT(r, s)])) && \
   MAY_REPLACE(r, s, a) && HELD(r, s, number[a] - 1) == base[a])

#define ALONE(r, s) (OWNS(r, s) && COPY_IN(s, known[AT(r, s)]) == NONE)

/* What the copy would refuse is not sent. */
inline send(r, s, a) {
  i = COPY_IN(s, known[AT(r, s)]);
  if
  :: i != NONE && !dead[i] && known[AT(i, s)] == known[AT(r, s)] -> sent[OF(a, s)] = sent[OF(a, s)] | BIT(known[AT(r, s)])
  :: else
  fi
}

/* PREPARED of an old generation is refused. */
#define ANSWERED(generations, s) ((generations) & (IS(OLD_OWNER) -> 255 : BIT(generation[s])))

inline compute(r, s, a) {
  HELD(r, s, number[a]) = a;
  assert((content[base[a]] & pushes[a]) == 0); /* no push is counted twice */
  assert(content[a] == (content[base[a]] | pushes[a]));
  staged[AT(r, s)] = staged[AT(r, s)] & ~content[base[a]];
  if
  :: ALONE(r, s) || IS(NOT_STORED) -> prepared[OF(a, s)] = prepared[OF(a, s)] | ANSWERED(BIT(known[AT(r, s)]), s)
  :: else
  fi;
  if
  :: !ALONE(r, s) -> send(r, s, a)
  :: else
  fi;
  must_be_held(current)
}

/* The copy has stored it, so the owner answers PREPARED. */
#define STORING(r, s, a) \
  (sent[OF(a, s)] & copied[AT(r, s)] & ~prepared[OF(a, s)] & (IS(OLD_OWNER) -> 255 : BIT(known[AT(r, s)])))
inline store(r, s, a) {
  prepared[OF(a, s)] = prepared[OF(a, s)] | ANSWERED(STORING(r, s, a), s);
  HELD(r, s, number[a]) = a;
  must_be_held(current)
}

#define MAY_MISS(r, s, a) \
  (MAY_STEP(r, s, a) && known[AT(r, s)] == generation[s] && !COVERS(staged[AT(r, s)] | missing[a], pushes[a]) && !IS(SILENT))

#define ATTEMPT_OF(r, s, a) \
  :: d_step { MAY_STEP(r, s, a) && COVERS(staged[AT(r, s)], pushes[a]) -> compute(r, s, a); collect() } \
  :: d_step { MAY_MISS(r, s, a) -> missing[a] = missing[a] | (pushes[a] & ~staged[AT(r, s)]) } \
  :: d_step { !dead[r] && STORING(r, s, a) != 0 && MAY_REPLACE(r, s, a) -> store(r, s, a); collect() }

#if P0 == P1 /* then the first to push is called worker 0 */
#define MAY_START(w) ((w) == 0 || started || killed[0])
#else
#define MAY_START(w) true
#endif
#define PUSH_OF(w, r, s) \
  :: d_step { \
       UNFINISHED(w) && MAY_START(w) && OWNS(r, s) && !HAS(staged[AT(r, s)], PUSH(w)) && (strays > 0 || !STRAY(r, s)) && \
       (s == 0 || HAS(staged[AT(OWNER(0), 0)], PUSH(w))) -> \
       stray(r, s); \
       staged[AT(r, s)] = staged[AT(r, s)] | BIT(PUSH(w)); \
       started = 1 \
     }

/* ---- early pulls ---- */

#define NEXT(r, s) (number[newest[r]] < NV -> HELD(r, s, number[newest[r]] + 1) : 0)
#define FOLLOWED(r, s) (early[s] != 0 && early_from[s] == r)
#define STILL_THERE(r, s) (OWNS(r, s) && HELD(r, s, number[early[s]]) == early[s])
#define IS_DONE(r, s) \
  ((STILL_THERE(r, s) || IS(EARLY_ANY)) && (number[newest[r]] >= number[early[s]] || IS(EARLY_DONE)))

inline follow(r, s) {
  early[s] = NEXT(r, s);
  early_from[s] = r;
  earlies--
}
inline end_early(s) {
  early[s] = 0;
  early_from[s] = 0
}

/* ---- owners and copies ---- */

inline take_over(r, s) {
  i = OWNER(s);
  lapse(i);
  j = newest[r];
  change(s, r, NONE);
  if
  :: IS(READ_BEFORE) && j != 0 -> newest[r] = j
  :: else
  fi;
  if
  :: IS(KEEP_PREPARED) && number[current] < NV && HELD(r, s, number[current] + 1) != 0 -> newest[r] = HELD(r, s, number[current] + 1)
  :: else
  fi;
  must_be_held(current)
}

inline refresh(r, s) {
  if
  :: known[AT(r, s)] == 0 && HAS(owned[AT(r, s)], generation[s]) -> /* an owner that was started again */
     i = COPY(s);
     change(s, r, i)
  :: else
  fi;
  if
  :: COPIES(r, s) -> /* what is on its way to it is refused from now on */
     for (k : 2 .. A) {
       sent[OF(k, s)] = sent[OF(k, s)] & ~BIT(known[AT(r, s)])
     }
  :: else
  fi;
  known[AT(r, s)] = generation[s];
  if
  :: !OWNS(r, s) ->
     staged[AT(r, s)] = 0;
     fed[AT(r, s)] = 0;
     if
     :: s == 0 -> told[r] = 0; attempt[r] = 0
     :: else
     fi;
     if
     :: !OWNS(r, 1 - s) -> newest[r] = 0
     :: else
     fi
  :: else
  fi
}

#define FEED(r, n) (newest[r] | ((n) << 5))
inline feed(r, s, n) {
  if
  :: MAY_REPLACE(n, s, newest[r]) ->
     HELD(n, s, number[newest[r]]) = newest[r];
     fed[AT(r, s)] = FEED(r, n)
  :: else
  fi;
  must_be_held(current)
}

#define MAY_REGISTER(r, s) \
  (fed[AT(r, s)] != 0 && known[AT(r, s)] == generation[s] && ((fed[AT(r, s)] & 31) == current || IS(COPY_BEHIND)))
inline register(r, s) {
  i = fed[AT(r, s)] >> 5;
  if
  :: IS(SAME_GENERATION) -> copied[AT(i, s)] = copied[AT(i, s)] | BIT(generation[s])
  :: else -> change(s, r, i)
  fi;
  fed[AT(r, s)] = 0;
  must_be_held(current)
}

#define COPY_FROM(n, r, s) \
  :: d_step { \
       n != r && ALONE(r, s) && !dead[n] && !OWNS(n, s) && HELD(r, s, number[newest[r]]) == newest[r] && fed[AT(r, s)] != FEED(r, n) -> \
       feed(r, s, n); \
       collect() \
     }

proctype shard(byte r; byte s) {
end:
  do
  ATTEMPT_OF(r, s, 2)
  ATTEMPT_OF(r, s, 3)
#if A > 3
  ATTEMPT_OF(r, s, 4)
#endif
#if A > 4
  ATTEMPT_OF(r, s, 5)
#endif
#if A > 5
  ATTEMPT_OF(r, s, 6)
#endif
#if A > 6
  ATTEMPT_OF(r, s, 7)
#endif
#if A > 7
  ATTEMPT_OF(r, s, 8)
#endif
  PUSH_OF(0, r, s)
  PUSH_OF(1, r, s)
  COPY_FROM(0, r, s)
  COPY_FROM(1, r, s)
#if NR > 2
  COPY_FROM(2, r, s)
#endif
  :: d_step { !dead[r] && known[AT(r, s)] != generation[s] -> refresh(r, s); collect() }
  :: d_step { COPIES(r, s) && known[AT(r, s)] == generation[s] && MAY_LAPSE(OWNER(s)) -> take_over(r, s); i = 0 }
  :: d_step {
       OWNS(r, s) && known[AT(r, s)] == generation[s] && COPY(s) != NONE && MAY_LAPSE((COPY(s) == NONE -> 0 : COPY(s))) ->
       i = COPY(s);
       lapse(i);
       change(s, r, NONE);
       i = 0
     }
  :: d_step { MAY_LEARN(r, s) && !(s == 1 && OWNS(r, 0) && !STRAY(r, 0)) -> learn(r); collect() }
  :: d_step { MAY_REGISTER(r, s) -> register(r, s); i = 0 }
  :: d_step { earlies > 0 && early[s] == 0 && OWNS(r, s) && newest[r] != 0 && NEXT(r, s) != 0 -> follow(r, s) }
  :: d_step {
       FOLLOWED(r, s) && IS_DONE(r, s) ->
       assert(current == early[s] || number[current] > number[early[s]]);
       end_early(s);
       collect()
     }
  :: d_step { FOLLOWED(r, s) && !STILL_THERE(r, s) && !IS(EARLY_ANY) -> end_early(s); collect() } /* the connection ends */
  od
}
